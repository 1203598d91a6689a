"""The pages: ask, follow, browse, look; nothing comes from another host."""

import re
from html.parser import HTMLParser
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from tests.api.samples import SHORTEST, TINY, finished, searched


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.sent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = [v for k, v in attrs if k in {"href", "src", "action"} and v]
        (self.sent if ("method", "post") in attrs else self.links).extend(found)


def _parsed(text: str) -> _Links:
    parser = _Links()
    parser.feed(text)
    return parser


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


def test_the_form_sets_any_field_of_a_request(client: TestClient) -> None:
    answer = _send(
        client,
        cluster="dgx-h100",
        gpus_per_node="2",
        method="qlora, double quantized",
        others="training.matmul_precision=fp8\n\nsearch.keep=3",
    )
    assert answer.status_code == 303, answer.text
    found = client.get(f"/v1{answer.headers['location']}").json()
    assert found["summary"]["cluster"]["gpus"] == 2
    training = found["summary"]["training"]
    assert training["matmul_precision"] == "fp8"
    assert training["lora"]["double_quantized"]
    page = client.get(answer.headers["location"]).text
    assert "QLoRA of rank 16, double quantized" in page
    wrong = _send(client, others="matmul_precision")
    assert wrong.status_code == 422
    assert "path=value" in wrong.text
    assert "/training/foo" in _send(client, others="training.foo=1").text


@pytest.mark.parametrize("field", ["nodes", "gpus_per_node", "seq_len", "global_batch", "tokens"])
def test_a_fraction_of_a_count_is_refused_and_not_cut(client: TestClient, field: str) -> None:
    answer = _send(client, **{field: "1.5"})
    assert answer.status_code == 422
    assert f"/{field}</code>" in answer.text


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
        found = _parsed(answer.text)
        assert all(link.startswith("/") for link in found.sent)
        for link in found.links:
            assert link.startswith(("/", "?")), link
            if not link.startswith("?"):
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


def test_a_candidate_is_verified_from_its_page(client: TestClient) -> None:
    plan = searched(client, TINY)
    own = f"/plans/{plan['id']}/candidates/1"
    sent = _parsed(client.get(own).text).sent
    assert sent == [f"{own}/dry-run", f"{own}/trial"]
    for url, form in (
        (sent[0], {}),
        (sent[1], {"executor": "local", "steps": "3", "adapt_micro_batch": "yes"}),
    ):
        answer = client.post(url, data=form, follow_redirects=False)
        assert answer.status_code == 303, answer.text
        page = answer.headers["location"]
        cancel = _parsed(client.get(page).text).sent
        assert cancel == [f"{page}/cancel"]
        stopped = client.post(cancel[0])
        assert "cancelled" in stopped.text
        assert _parsed(stopped.text).sent == []
    assert "cancelled" in client.get(f"/plans/{plan['id']}").text


def test_a_campaign_is_begun_from_the_page_of_its_request(client: TestClient) -> None:
    plan = searched(client, TINY)
    url = f"/plans/{plan['id']}/campaigns"
    assert url in _parsed(client.get(f"/plans/{plan['id']}").text).sent
    wrong = client.post(url, data={"max_trials": "0"})
    assert wrong.status_code == 422
    assert "/max_trials" in wrong.text
    answer = client.post(url, data={"max_trials": "1", "executor": "local"})
    assert "Campaign" in answer.text
    stopped = client.post(f"{answer.url.path}/cancel")
    assert "cancelled" in stopped.text


def test_what_cannot_run_is_refused_on_a_page(client: TestClient, done: dict[str, Any]) -> None:
    answer = client.post(f"/plans/{done['id']}/candidates/1/trial", data={"executor": "local"})
    assert answer.status_code == 422
    assert "the plan needs 8 ranks; the executor has 2" in answer.text
    other = {"Sec-Fetch-Site": "cross-site"}
    for what in ("candidates/1/trial", "candidates/1/dry-run", "campaigns"):
        assert client.post(f"/plans/{done['id']}/{what}", headers=other).status_code == 403


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
