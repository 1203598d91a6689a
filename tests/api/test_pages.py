"""The pages: ask, follow, browse, look; nothing comes from another host."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from tests.api.samples import SHORTEST, finished, searched


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.links += [v for k, v in attrs if k in {"href", "src", "action"} and v]


def _links(text: str) -> list[str]:
    parser = _Links()
    parser.feed(text)
    return parser.links


@pytest.fixture(scope="module")
def done(client: TestClient) -> dict[str, Any]:
    return searched(client, SHORTEST)


def _send(client: TestClient, **form: str) -> Any:
    fields = {"model": "llama-2-13b", "cluster": "dgx-a100-80g", "nodes": "1"} | form
    return client.post("/plans", data=fields, follow_redirects=False)


def test_the_form_leads_to_the_ranking_and_to_a_config(client: TestClient) -> None:
    assert "How do I train this model" in client.get("/").text
    answer = _send(client, tokens="100e9")
    assert answer.status_code == 303
    url = answer.headers["location"]
    finished(client, url.rsplit("/", 1)[-1])
    ranking = client.get(url).text
    assert "llama-2-13b on 8 x" in ranking
    best = client.get(f"{url}/candidates/1").text
    assert "Why it ranks here" in best
    assert "train_micro_batch_size_per_gpu" in best


def test_a_form_with_a_fault_comes_back_with_what_is_wrong(client: TestClient) -> None:
    answer = _send(client, seq_len="8192", nodes="2")
    assert answer.status_code == 422
    assert "/training/seq_len" in answer.text
    assert "give at most 4096" in answer.text
    assert 'value="8192"' in answer.text


def test_a_pasted_config_stands_for_the_model(client: TestClient) -> None:
    assert "not JSON" in _send(client, config="{").text
    assert "mamba" in _send(client, config='{"model_type": "mamba"}').text


def test_what_a_user_sends_is_shown_as_text(client: TestClient) -> None:
    answer = _send(client, nodes='"><script>alert(1)</script>')
    assert "<script>" not in answer.text


def test_a_form_from_another_site_is_refused(client: TestClient) -> None:
    answer = client.post("/plans", data={"nodes": "1"}, headers={"Sec-Fetch-Site": "cross-site"})
    assert answer.status_code == 403


def test_the_ranking_is_filtered_and_sorted_by_the_address(
    client: TestClient, done: dict[str, Any]
) -> None:
    page = client.get(f"/plans/{done['id']}?zero_stage=2&sort=memory_gib&tp=&max_memory_gib=")
    assert page.status_code == 200, page.text
    summaries = re.findall(r'candidates/\d+">(deep[^<]+|mega[^<]+)</a>', page.text)
    assert summaries
    assert all("zero2" in s for s in summaries)
    wrong = client.get(f"/plans/{done['id']}?zero_stage=x")
    assert wrong.status_code == 422
    assert "valid integer" in wrong.text


def test_the_form_asks_about_the_users_own_plan_and_other_worlds(client: TestClient) -> None:
    answer = _send(client, around="zero_stage=3, micro_batch=2", what_if="yes")
    assert answer.status_code == 303, answer.text
    url = answer.headers["location"]
    finished(client, url.rsplit("/", 1)[-1])
    ranking = client.get(url).text
    for words in ("Your plan", "What would improve it", "Rule of thumb", "With one more node"):
        assert words in ranking
    wrong = _send(client, around="zero=3")
    assert wrong.status_code == 422
    assert "/search/around" in wrong.text


def test_a_page_says_why_not_another_plan(client: TestClient, done: dict[str, Any]) -> None:
    page = client.get(f"/plans/{done['id']}/explain?tp=8&zero_stage=&pp=").text
    assert "is slower" in page
    assert "tensor-parallel traffic" in page
    wrong = client.get(f"/plans/{done['id']}/explain?tp=x")
    assert wrong.status_code == 422
    assert "valid integer" in wrong.text


def test_every_page_uses_this_host_alone(client: TestClient, done: dict[str, Any]) -> None:
    pages = ["/", "/docs", f"/plans/{done['id']}", f"/plans/{done['id']}/candidates/1"]
    pages.append(f"/plans/{done['id']}/explain?tp=8")
    for url in pages:
        answer = client.get(url)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        for link in _links(answer.text):
            assert link.startswith(("/", "?")), link
            if not link.startswith("?") and link != "/plans":
                followed = client.get(link)
                assert followed.status_code in {200, 409}, link


def test_no_plan_fits_is_said_with_what_would_help(client: TestClient) -> None:
    request = {
        "model": "llama-2-70b",
        "cluster": {"preset": "dgx-a100-80g", "nodes": 1},
        "training": {"seq_len": 4096, "global_batch": 64},
        "search": {"allow": {"offload": False, "nvme": False}, "software": ["deepspeed"]},
    }
    plan = searched(client, request)
    text = client.get(f"/plans/{plan['id']}").text
    assert "No plan fits" in text
    assert "nodes" in text


def test_pages_ask_for_the_key_as_a_password(tmp_path: Any) -> None:
    with TestClient(create_app(Settings(var=tmp_path, api_key="k3y"))) as served:
        assert served.get("/").status_code == 401
        assert served.get("/", auth=("me", "no")).status_code == 401
        assert served.get("/", auth=("me", "k3y")).status_code == 200


def test_the_reference_has_every_route(client: TestClient) -> None:
    text = client.get("/docs").text
    for path, methods in client.get("/openapi.json").json()["paths"].items():
        for method in methods:
            assert f"<code>{method.upper()} {path}</code>" in text
