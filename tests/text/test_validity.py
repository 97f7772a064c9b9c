"""The dates between which a text says that it holds."""
# ruff: noqa: RUF001 - Chinese punctuation

import pytest

from llama_retrieval_ext.text.validity import validity_in


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("第九十条 本法自2021年9月1日起施行。", "2021-09-01", None),
        ("本条例自二〇〇四年二月一日起施行", "2004-02-01", None),
        ("2002年11月1日起施行的办法同时废止，本办法自 2021 年 9 月 1 日起施行", "2021-09-01", None),
        ("有效期：2024年1月1日至2024年12月31日", "2024-01-01", "2025-01-01"),
        ("许可证有效期至2025年12月31日。", None, "2026-01-01"),
        ("本办法于2020年3月5日废止", None, "2020-03-05"),
        ("Effective date: May 1, 2026. Until further notice.", "2026-05-01", None),
        ("This Act comes into force on 1 July 2024.", "2024-07-01", None),
        ("Prices apply from 1st of March 2025 to 30 June 2025.", "2025-03-01", "2025-07-01"),
        ("It took effect on 2020-01-02 and was repealed on 2022-01-01", "2020-01-02", "2022-01-01"),
        (
            "The 2019 edition expired on 1 May 2020; this one is effective 2 May 2020",
            "2020-05-02",
            None,
        ),
        ("本法自2023年2月30日起施行；企业应当在30日内整改", None, None),
        ("The meeting on 1 May 2026 was effective.", None, None),
    ],
)
def test_validity_is_what_the_text_says_of_itself(
    text: str, start: str | None, end: str | None
) -> None:
    read = validity_in(text)
    assert (read and read.start, read and read.end) == (start, end)
    assert read is None or read.words.split("; ")[0] in text
