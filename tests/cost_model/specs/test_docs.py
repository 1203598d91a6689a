"""The page about models says what the code does."""

from tests.cost_model.specs.docs import TARGET, page


def test_the_page_about_models_is_printed_from_the_code() -> None:
    assert TARGET.read_text("utf-8") == page()
