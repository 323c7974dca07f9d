"""Feed ids: one by one, and many at once."""

from __future__ import annotations

import pytest
from peer_support import feed_of

from culm.ssb.feed_id import are_feed_ids, is_feed_id

IDS = [feed_of(f"feed {number}") for number in range(3)]


@pytest.mark.parametrize("ids", [[], IDS[:1], IDS, tuple(IDS), frozenset(IDS), dict.fromkeys(IDS)])
def test_ids_of_feeds(ids: list[str]) -> None:
    assert are_feed_ids(ids)


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "\n",
        IDS[0] + "\n",
        "\n".join(IDS),  # not one id, but three
        IDS[0][:-1],
        IDS[0].replace("=", "A"),
        f"{IDS[0]}\n{IDS[1]}",
        IDS[0].encode(),
        None,
    ],
)
@pytest.mark.parametrize("place", range(4))
def test_one_that_is_none_is_found_among_others(wrong: object, place: int) -> None:
    assert not (isinstance(wrong, str) and is_feed_id(wrong))
    assert not are_feed_ids([*IDS[:place], wrong, *IDS[place:]])
