"""A reader of JSON as people paste it: it goes on where a strict one stops, and tells what it met.

Accepted and reported: comments, trailing and missing commas, single and typographic quotes, bare
keys, Python's True, False and None, NaN, numbers such as 5_000, .5 and +1, placeholders of
templates, duplicate keys, missing brackets, text around the document, a byte-order mark.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from planner.check.report import Path

MAX_DEPTH = 64
QUOTES = {'"': '"', "'": "'", "“": "”", "”": "”", "‘": "’", "’": "’"}
WORDS = {"true": True, "false": False, "null": None}
PYTHON_WORDS = {"True": True, "False": False, "None": None, "TRUE": True, "FALSE": False}
INFINITE = {"NaN", "Infinity", "-Infinity", "inf", "-inf", "nan"}
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?\Z")
LOOSE_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*)?\.?\d[\d_]*\.?(?:[eE][-+]?\d+)?\Z")
BARE = re.compile(r"[^\s,:{}\[\]\"'#]+")
TEMPLATE = re.compile(r"\$\{[^}\n]*\}|\{\{[^\n]*?\}\}|<[A-Za-z_][\w .-]*>")
TEMPLATE_LINE = re.compile(r"\{%.*?%\}", re.DOTALL)
UNIT = re.compile(r"\\u([0-9a-fA-F]{4})")
PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class Placeholder(str):
    """A value that a template has still to fill in; the text is as written."""

    __slots__ = ()


@dataclass(frozen=True)
class Slip:
    """One place where the text is no JSON."""

    code: str
    position: int
    line: int
    column: int
    """Both from 1."""
    path: Path
    what: str
    """What stands there."""
    meant: str
    """What was probably meant."""


@dataclass
class Document:
    """What was read."""

    value: Any
    slips: list[Slip] = field(default_factory=list)
    places: dict[Path, tuple[int, int]] = field(default_factory=dict)
    """Line and column of each key."""
    scientific: dict[Path, str] = field(default_factory=dict)
    """Numbers written with an exponent or a point, as written."""


class TooDeepError(ValueError):
    """Nested beyond MAX_DEPTH."""


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.document = Document({})
        self.lines = [0, *(m.end() for m in re.finditer("\n", text))]

    def slip(self, code: str, position: int, path: Path, what: str, meant: str) -> None:
        line, column = self.where(position)
        self.document.slips.append(Slip(code, position, line, column, path, what, meant))

    def where(self, position: int) -> tuple[int, int]:
        from bisect import bisect_right

        line = bisect_right(self.lines, position)
        return line, position - self.lines[line - 1] + 1

    def peek(self, length: int = 1) -> str:
        return self.text[self.at : self.at + length]

    def skip(self, path: Path) -> None:
        """Over white space and comments."""
        while self.at < len(self.text):
            here = self.peek()
            if here.isspace() or here == "\ufeff":
                self.at += 1
            elif here == "#" or self.peek(2) == "//":
                self._comment(path, self.text.find("\n", self.at))
            elif self.peek(2) == "/*":
                end = self.text.find("*/", self.at + 2)
                self._comment(path, end + 2 if end >= 0 else -1)
            elif found := TEMPLATE_LINE.match(self.text, self.at):
                words = found.group()
                self.slip(
                    "template",
                    self.at,
                    path,
                    f"{words[:40]} is a line of a template",
                    "render the template first, and check what comes out",
                )
                self.at = found.end()
            else:
                return

    def _comment(self, path: Path, end: int) -> None:
        self.slip(
            "comment",
            self.at,
            path,
            "a comment; JSON has none",
            "drop it: DeepSpeed's own reader (Hjson) skips it, HF Trainer and Accelerate stop here",
        )
        self.at = end if end >= 0 else len(self.text)

    def value(self, path: Path) -> Any:
        if len(path) > MAX_DEPTH:
            raise TooDeepError
        self.skip(path)
        here = self.peek()
        if found := TEMPLATE.match(self.text, self.at):
            return self._placeholder(found.group(), found.end(), path)
        if here == "{":
            return self.mapping(path)
        if here == "[":
            return self.sequence(path)
        if here in QUOTES:
            return self.string(path)
        return self.word(path)

    def _placeholder(self, text: str, end: int, path: Path) -> Placeholder:
        self.slip(
            "template",
            self.at,
            path,
            f"{text[:40]} is a placeholder",
            "fill it in before the file is used",
        )
        self.at = end
        return Placeholder(text)

    def string(self, path: Path) -> str:
        start, opening = self.at, self.peek()
        closing = QUOTES[opening]
        if opening != '"':
            kind = "single quotes" if opening == "'" else "typographic quotes"
            self.slip("quotes", start, path, f"{kind}; JSON has double quotes", 'write "…"')
        self.at += 1
        out: list[str] = []
        while self.at < len(self.text):
            here = self.peek()
            if here == closing or (opening != "'" and here == "”"):
                self.at += 1
                return "".join(out)
            if here == "\n":
                break
            if here == "\\":
                out.append(self._escape())
            else:
                out.append(here)
                self.at += 1
        self.slip("unclosed", start, path, "a string that is not closed", f"add {closing}")
        kept = "".join(out)
        trimmed = kept.rstrip().rstrip(",}] ")
        self.at -= len(kept) - len(trimmed)
        return trimmed

    def _escape(self) -> str:
        code = self.text[self.at + 1 : self.at + 2]
        if code == "u":
            found = PAIR.match(self.text, self.at) or UNIT.match(self.text, self.at)
            if found is not None:
                self.at = found.end()
                units = b"".join(int(u, 16).to_bytes(2, "big") for u in found.groups())
                return units.decode("utf-16-be", "surrogatepass")
        self.at += 2
        return ESCAPES.get(code, code)

    def word(self, path: Path) -> Any:  # noqa: PLR0911
        found = BARE.match(self.text, self.at)
        if found is None:
            here = self.peek()
            what = (
                f"{here!r} where a value should be" if here else "the end where a value should be"
            )
            self.slip("missing-value", self.at, path, what, "write the value")
            return None
        word, start = found.group(), self.at
        self.at = found.end()
        if word in WORDS:
            return WORDS[word]
        if word in PYTHON_WORDS:
            value = PYTHON_WORDS[word]
            meant = {True: "true", False: "false", None: "null"}[value]
            self.slip("python-word", start, path, f"{word} is Python; JSON writes {meant}", meant)
            return value
        if NUMBER.match(word):
            return self._number(word, path)
        if word in INFINITE:
            self.slip("not-a-number", start, path, f"{word} is no JSON number", "write a number")
            return None
        if LOOSE_NUMBER.match(word):
            meant = word.replace("_", "").lstrip("+")
            meant = "0" + meant if meant.startswith(".") else meant.replace("-.", "-0.")
            meant = re.sub(r"\.(?=$|[eE])", "", meant)
            self.slip("number-form", start, path, f"{word} is no JSON number", f"write {meant}")
            return self._number(meant, path)
        if re.fullmatch(r"\$?[A-Za-z_][A-Za-z0-9_]*", word) and (
            word.upper() == word or word.startswith("$")
        ):
            self.at = start
            return self._placeholder(word, found.end(), path)
        self.slip("bare-word", start, path, f"{word[:40]} without quotes", f'write "{word[:40]}"')
        return word

    def _number(self, word: str, path: Path) -> Any:
        if any(c in word for c in ".eE"):
            self.document.scientific[path] = word
        try:
            number = float(word)
            if any(c in word for c in ".eE"):
                return number if abs(number) < float("inf") else None
            return int(word) if len(word) < 400 else number
        except (ValueError, OverflowError):
            return None

    def sequence(self, path: Path) -> list[Any]:
        start = self.at
        self.at += 1
        out: list[Any] = []
        while True:
            self.skip(path)
            here = self.peek()
            if here == "]":
                self.at += 1
                return out
            if here in ("", "}"):
                self.slip("unclosed", start, path, "a list that is not closed", "add ]")
                return out
            if here in (",", ":"):
                self.slip("extra-comma", self.at, path, f"a {here} too many", "drop it")
                self.at += 1
                continue
            out.append(self.value((*path, str(len(out)))))
            self._comma(path, "]")

    def mapping(self, path: Path, *, braces: bool = True) -> dict[str, Any]:
        start = self.at
        self.at += braces
        out: dict[str, Any] = {}
        while True:
            self.skip(path)
            here = self.peek()
            if here == "}" and braces:
                self.at += 1
                return out
            if here == "":
                if braces:
                    self.slip("unclosed", start, path, "a block that is not closed", "add }")
                return out
            if here in (",", ":", "]", "}", "[", "{"):
                code = "extra-comma" if here == "," else "stray"
                self.slip(code, self.at, path, f"a {here} too many", "drop it")
                self.at += 1
                continue
            before = self.at
            self._member(path, out)
            if self.at == before:
                self.at += 1

    def _member(self, path: Path, out: dict[str, Any]) -> None:
        place = self.at
        if self.peek() in QUOTES:
            key = self.string(path)
        else:
            found = BARE.match(self.text, self.at)
            key = found.group() if found else self.peek()
            self.at += len(key)
            self.slip(
                "bare-key", place, (*path, key), f"the key {key[:40]} has no quotes", "add them"
            )
        inner = (*path, key)
        self.skip(inner)
        if self.peek() in (":", "="):
            if self.peek() == "=":
                self.slip("stray", self.at, inner, "= after a key; JSON has :", "write :")
            self.at += 1
            if inner in self.document.places:
                line, _ = self.document.places[inner]
                self.slip(
                    "duplicate-key",
                    place,
                    inner,
                    f"{key} is given a second time (first in line {line})",
                    "keep one: DeepSpeed refuses both, others take the last in silence",
                )
            self.document.places[inner] = self.where(place)
            out[key] = self.value(inner)
        else:
            self.slip("missing-colon", self.at, inner, f"no : after the key {key[:40]}", "add :")
            if self.peek() not in (",", "}", "]", ""):
                self.document.places[inner] = self.where(place)
                out[key] = self.value(inner)
        self._comma(path, "}")

    def _comma(self, path: Path, closing: str) -> None:
        """The comma after a member, and whether one follows or lacks."""
        end = self.at
        self.skip(path)
        here = self.peek()
        if here == ",":
            comma = self.at
            self.at += 1
            self.skip(path)
            if self.peek() in ("}", "]"):
                self.slip(
                    "trailing-comma", comma, path, "a comma before a closing bracket", "drop it"
                )
        elif here not in ("}", "]", ""):
            self.slip("missing-comma", end, path, "no comma between two entries", "add one")

    def root(self) -> Any:
        """The document, with what stands around it."""
        self.skip(())
        if self.peek(3) == "```":
            self.at = max(self.text.find("\n", self.at), self.at + 3)
            self.slip("surrounding-text", 0, (), "a Markdown fence", "drop it")
            self.skip(())
        start = self.at
        if self.peek() not in ("{", "["):
            brace = self.text.find("{", self.at)
            head = self.text[self.at : brace] if brace >= 0 else ""
            if brace < 0 or ":" in head.rstrip().rstrip(":=").replace("\n", " "):
                value: Any = self.mapping((), braces=False) if ":" in self.text else self.value(())
                self.slip("no-braces", start, (), "the document has no { } around it", "add them")
                return value
            self.slip("surrounding-text", start, (), "text before the document", "drop it")
            self.at = brace
        value = self.value(())
        self.skip(())
        rest = self.text[self.at :].strip()
        if rest and not rest.startswith("```"):
            self.slip(
                "surrounding-text", self.at, (), f"text after the document: {rest[:40]}", "drop it"
            )
        return value


def read(text: str) -> Document:
    """Reads a document and never raises on what a person may have written.

    Beyond MAX_DEPTH levels it gives up: the value is then an empty block and one slip says so.
    """
    reader = _Reader(text)
    try:
        reader.document.value = reader.root()
    except TooDeepError:
        reader.document.value = {}
        reader.slip("too-deep", reader.at, (), f"nested deeper than {MAX_DEPTH}", "flatten it")
    return reader.document
