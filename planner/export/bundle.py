"""Everything that a plan needs, in one zip."""

import io
import json
import zipfile
from collections.abc import Iterable

from planner.export.readme import readme
from planner.export.result import Exported, Exporter, NotExportable, Planned

FIXED_TIME = (2020, 1, 1, 0, 0, 0)
"""The same plan gives the same bytes."""


def collected(planned: Planned, exporters: Iterable[Exporter]) -> dict[str, str | bytes]:
    """The files of every format that can express the plan."""
    out: dict[str, str | bytes] = {}
    for exporter in exporters:
        try:
            out |= exporter(planned).files
        except NotExportable:
            continue
    return out


def bundle(planned: Planned, exporters: Iterable[Exporter]) -> Exported:
    """bundle.zip with a README."""
    files = collected(planned, exporters)
    files["plan.json"] = json.dumps(planned.plan.model_dump(mode="json"), indent=2) + "\n"
    files["README.md"] = readme(planned, sorted(files))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            content = files[name]
            info = zipfile.ZipInfo(f"{planned.options.job_name}/{name}", FIXED_TIME)
            runs = name.endswith((".sh", ".sbatch"))
            info.external_attr = (0o100755 if runs else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return Exported("bundle.zip", {"bundle.zip": buffer.getvalue()})
