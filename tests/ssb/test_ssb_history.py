"""createHistoryStream: one peer asks for feeds, the other sends them in order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from history_support import Side, feed, key, messages, run, values

from culm.ssb.history import (
    METHOD,
    FeedState,
    HistoryRequest,
    HistoryServer,
    Limits,
    ReplyState,
    Timing,
)
from culm.ssb.history.states import (
    FEED_RULES,
    REPLY_RULES,
    FeedInput,
    ReplyInput,
)
from culm.ssb.messages import ClassicMessage, create_message
from culm.ssb.muxrpc import CallEnded, CallError, CallReceived, CallType, Manifest
from culm.ssb.muxrpc import Limits as RpcLimits

ALICE, BOB = feed("alice"), feed("bob")


def ask(side: Side, **fields: Any) -> int:
    """Make a call; its number."""
    return side.connection.make_call(METHOD, CallType.SOURCE, {"id": ALICE, **fields}).number


def ended(side: Side, number: int) -> CallEnded | None:
    found = [event for event in side.events if isinstance(event, CallEnded)]
    return next((event for event in found if event.number == number), None)


def asked(side: Side) -> list[dict[str, Any]]:
    """The arguments of the received calls."""
    return [event.args[0] for event in side.events if isinstance(event, CallReceived)]


class TestServer:
    """Calls as peers make them."""

    @pytest.mark.parametrize(
        ("fields", "sequences"),
        [
            ({}, [1, 2, 3, 4, 5]),
            ({"sequence": 3}, [3, 4, 5]),
            ({"seq": 4}, [4, 5]),
            ({"sequence": 0, "seq": 2}, [2, 3, 4, 5]),
            ({"sequence": 5}, [5]),
            ({"sequence": 6}, []),
            ({"sequence": 2**53 - 1}, []),
            ({"limit": 2}, [1, 2]),
            ({"limit": 2, "sequence": 4}, [4, 5]),
            ({"limit": 9}, [1, 2, 3, 4, 5]),
            ({"limit": -1}, [1, 2, 3, 4, 5]),
            ({"limit": 0}, [1, 2, 3, 4, 5]),
            ({"limit": 3.0, "sequence": 2.0}, [2, 3, 4]),
            ({"old": False}, []),
            ({"old": True, "live": False}, [1, 2, 3, 4, 5]),
            ({"live": None, "limit": None}, [1, 2, 3, 4, 5]),
        ],
        ids=str,
    )
    def test_what_is_there(self, fields: dict[str, Any], sequences: list[int]) -> None:
        client, server = Side(), Side().store("alice", 5)
        number = ask(client, keys=False, **fields)
        run(client, server)
        assert values(client, number) == [
            json.loads(messages("alice", 5)[sequence - 1].data) for sequence in sequences
        ]
        assert ended(client, number) == CallEnded(number=number)
        assert server.server.state(-number) is ReplyState.OVER

    def test_keys(self) -> None:
        client, server = Side(), Side().store("alice", 2)
        number = ask(client)
        only_keys = ask(client, values=False)
        run(client, server)
        made = messages("alice", 2)
        assert values(client, number) == [
            {"key": message.id, "value": json.loads(message.data), "timestamp": 1234}
            for message in made
        ]
        assert values(client, only_keys) == [message.id for message in made]

    def test_live(self) -> None:
        client, server = Side(), Side().store("alice", 2)
        number = ask(client, keys=False, live=True)
        run(client, server)
        assert server.server.state(-number) is ReplyState.LIVE
        server.append("alice", 2)
        server.append("bob")
        server.append("alice")
        run(client, server)
        assert [value["sequence"] for value in values(client, number)] == [1, 2, 3, 4, 5]
        assert ended(client, number) is None
        client.connection.call(number).end()
        run(client, server)
        assert server.server.state(-number) is ReplyState.OVER
        server.append("alice")
        assert server.connection.data_to_send() == b""

    @pytest.mark.parametrize(
        ("fields", "sequences"),
        [
            ({"old": False}, [3, 4, 5]),
            ({"old": False, "sequence": 5}, [5]),
            ({"sequence": 5}, [5]),
            ({"limit": 4}, [1, 2, 3, 4]),
            ({"old": False, "limit": 1}, [3]),
        ],
        ids=str,
    )
    def test_live_with_bounds(self, fields: dict[str, Any], sequences: list[int]) -> None:
        client, server = Side(), Side().store("alice", 2)
        number = ask(client, keys=False, live=True, **fields)
        run(client, server)
        server.append("alice")
        server.append("alice", 2)
        run(client, server)
        assert [value["sequence"] for value in values(client, number)] == sequences
        assert (ended(client, number) is not None) is ("limit" in fields)

    @pytest.mark.parametrize("fields", [{}, {"values": False}, {"live": True}], ids=str)
    def test_a_message_that_the_store_has_damaged_costs_its_call_alone(
        self, fields: dict[str, Any]
    ) -> None:
        """Its id is made from its bytes."""
        client, server = Side(), Side().store("alice", 3).store("bob", 2)
        whole = server.feeds[ALICE][1]
        server.feeds[ALICE][1] = ClassicMessage(
            previous=whole.previous,
            sequence=whole.sequence,
            author=ALICE,
            timestamp=whole.timestamp,
            signature=whole.signature,
            data=whole.data[:-1],
            text=b"",
        )
        number, other = ask(client, **fields), ask(client, id=BOB)
        run(client, server)
        assert len(values(client, number)) == 1
        end = ended(client, number)
        assert end is not None
        assert end.failure is not None
        assert len(values(client, other)) == 2
        assert ended(client, other) == CallEnded(number=other)

    def test_of_a_feed_that_is_not_there(self) -> None:
        client, server = Side(), Side()
        number, live = ask(client), ask(client, live=True, keys=False)
        run(client, server)
        assert ended(client, number) == CallEnded(number=number)
        server.append("alice")
        run(client, server)
        assert len(values(client, live)) == 1

    @pytest.mark.parametrize(
        "args",
        [
            [],
            [{}],
            [None],
            [5],
            [{"id": 5}],
            [{"id": "alice"}],
            [{"id": ALICE}, {}],
            [{"id": ALICE, "sequence": "1"}],
            [{"id": ALICE, "seq": 1.5}],
            [{"id": ALICE, "sequence": 2**53}],
            [{"id": ALICE, "sequence": 1e300}],
            [{"id": ALICE, "limit": True}],
            [{"id": ALICE, "live": 1}],
            [{"id": ALICE, "keys": "no"}],
        ],
        ids=str,
    )
    def test_arguments_that_are_none(self, args: list[Any]) -> None:
        client, server = Side(), Side().store("alice", 1)
        call = client.connection.make_call(METHOD, CallType.SOURCE, *args)
        run(client, server)
        found = ended(client, call.number)
        assert found is not None
        assert found.failure is not None
        assert values(client, call.number) == []

    @pytest.mark.parametrize("name", [5, "alice", ALICE[1:]])
    def test_the_peer_is_told_what_is_no_feed(self, name: Any) -> None:
        with pytest.raises(ValueError, match="id is not a feed"):
            HistoryRequest.from_args([{"id": name}])

    def test_limits_of_another_type(self) -> None:
        with pytest.raises(TypeError, match="limits"):
            Side(limits=object())  # type: ignore[arg-type]

    def test_a_feed_that_the_peer_may_not_have(self) -> None:
        client, server = Side(), Side().store("alice", 1)
        server.hidden.add(ALICE)
        number = ask(client)
        run(client, server)
        failure = CallError("not for you")
        assert ended(client, number) == CallEnded(number=number, failure=failure)

    def test_a_feed_that_it_may_not_have_any_more(self) -> None:
        client, server = Side(), Side().store("alice", 1)
        number, other = ask(client, live=True), ask(client, live=True, id=BOB)
        run(client, server)
        server.server.withdraw(ALICE)
        server.append("alice")
        run(client, server)
        assert ended(client, number) == CallEnded(number=number, failure=CallError("not for you"))
        assert len(values(client, number)) == 1
        assert ended(client, other) is None

    def test_more_calls_than_the_limit(self) -> None:
        client = Side()
        server = Side(limits=Limits(replies_max=2)).store("alice", 1)
        numbers = [ask(client) for _ in range(3)]
        server.connection.receive_data(client.connection.data_to_send())
        server.step()  # the store has not read for any of them yet
        run(client, server)
        found = [ended(client, number) for number in numbers]
        assert [each and each.failure for each in found] == [
            None,
            None,
            CallError("too many history streams"),
        ]
        assert [len(values(client, number)) for number in numbers] == [1, 1, 0]

    def test_a_call_that_waits_for_news_gives_its_place_to_one_that_asks(self) -> None:
        """The one that has waited longest: it has everything that there was."""
        client, server = Side(), Side(limits=Limits(replies_max=2)).store("alice", 1)
        server.store("bob", 1)
        first, second = ask(client, live=True), ask(client, live=True, id=BOB)
        run(client, server)
        server.append("alice")  # the first one has still waited longest
        third = ask(client, live=True)
        run(client, server)
        assert ended(client, first) == CallEnded(number=first)
        assert [ended(client, number) for number in (second, third)] == [None, None]
        assert [len(values(client, number)) for number in (first, second, third)] == [2, 1, 2]
        server.append("bob")
        run(client, server)
        assert len(values(client, second)) == 2

    @pytest.mark.parametrize("calls_max", [1, 2, 3])
    def test_calls_that_wait_for_news_leave_a_place_for_another(self, calls_max: int) -> None:
        """One of the connection's places for the calls of a peer."""
        client, server = Side(), Side(rpc=RpcLimits(calls_max=calls_max)).store("alice", 1)
        numbers = []
        for _ in range(5):
            numbers.append(ask(client, live=True))
            run(client, server)
        assert [len(values(client, number)) for number in numbers] == [1] * 5
        over = [ended(client, number) for number in numbers]
        oldest = numbers[: 6 - calls_max]
        assert over == [CallEnded(number=each) for each in oldest] + [None] * (calls_max - 1)


class TestFlow:
    def test_no_more_is_read_than_there_is_room_for(self) -> None:
        rpc = RpcLimits(unsent_size_max=2000)
        client = Side()
        server = Side(limits=Limits(read_size_max=1000), rpc=rpc).store("alice", 100)
        number = ask(client, keys=False)
        server.connection.receive_data(client.connection.data_to_send())
        for _ in range(50):
            server.step()
        assert 0 < len(server.read_counts) < 6
        assert sum(server.read_counts) < 15
        run(client, server, piece=700)
        assert [value["sequence"] for value in values(client, number)] == [*range(1, 101)]

    def test_who_does_not_take_live_messages_gets_them_from_the_store_later(self) -> None:
        client = Side()
        server = Side(rpc=RpcLimits(unsent_size_max=1000)).store("alice", 1)
        number = ask(client, keys=False, live=True)
        run(client, server)
        for _ in range(50):
            server.append("alice")
        assert server.server.state(-number) is not ReplyState.LIVE
        held = len(server.connection.data_to_send())
        assert held < 2000
        server.step()
        assert len(server.read_counts) > 1
        client.connection.receive_data(b"")

    def test_and_in_order(self) -> None:
        client = Side()
        server = Side(rpc=RpcLimits(unsent_size_max=1000)).store("alice", 1)
        number = ask(client, keys=False, live=True)
        run(client, server)
        for _ in range(50):
            server.append("alice")
        run(client, server, piece=500)
        assert [value["sequence"] for value in values(client, number)] == [*range(1, 52)]
        assert server.server.state(-number) is ReplyState.LIVE

    def test_no_more_is_read_than_is_wanted(self) -> None:
        client, server = Side(), Side().store("alice", 30)
        ask(client, limit=2)
        ask(client, sequence=4, limit=3)
        run(client, server)
        assert server.read_counts == [2, 3]

    def test_calls_take_turns(self) -> None:
        client = Side()
        limits = Limits(read_count_max=5, reads_max=1)
        server = Side(limits=limits).store("alice", 30).store("bob", 30)
        ask(client, keys=False)
        ask(client, keys=False, id=BOB)
        run(client, server)
        authors = [event.read()["author"] for event in client.events if hasattr(event, "body")]
        assert authors[:20] == [ALICE] * 5 + [BOB] * 5 + [ALICE] * 5 + [BOB] * 5

    def test_a_call_that_ends_while_the_store_reads(self) -> None:
        client, server = Side(), Side().store("alice", 5)
        number = ask(client)
        server.connection.receive_data(client.connection.data_to_send())
        (event,) = [server.connection.next_event()]
        assert event is not None
        server.take(event)
        assert server.server.state(-number) is ReplyState.READING
        client.connection.call(number).end()
        run(client, server)
        assert values(client, number) == []
        assert server.server.reads == 0

    def test_a_connection_that_ends_while_the_store_reads(self) -> None:
        client, server = Side(), Side().store("alice", 5)
        ask(client)
        server.connection.receive_data(client.connection.data_to_send())
        (event,) = [server.connection.next_event()]
        assert event is not None
        server.take(event)
        server.connection.close()
        server.server.close()
        server.step()
        assert server.server.reads == 0


class TestReader:
    def test_catches_up_and_follows(self) -> None:
        client, server = Side(limits=Limits(messages_max=10)), Side().store("alice", 25)
        client.reader.want(ALICE, 0.0)
        client.reader.want(ALICE, 0.0)
        run(client, server)
        assert client.feeds == server.feeds
        assert client.reader.state(ALICE) is FeedState.LIVE
        assert [(each["sequence"], each.get("limit"), each["live"]) for each in asked(server)] == [
            (1, 10, False),
            (11, 10, False),
            (21, 10, False),
            (26, None, True),
        ]
        server.append("alice", 3)
        run(client, server)
        assert client.feeds == server.feeds

    def test_goes_on_where_it_is(self) -> None:
        client, server = Side().store("alice", 20), Side().store("alice", 25)
        client.reader.want(ALICE, 0.0)
        run(client, server)
        assert client.feeds == server.feeds
        assert len(values(client, 1)) == 5

    def test_several_at_a_time(self) -> None:
        client, server = Side(limits=Limits(calls_max=3)), Side()
        names = [f"author {number}" for number in range(20)]
        for name in names:
            server.store(name, 3)
            client.reader.want(feed(name), 0.0)
        assert len(client.connection.calls) == 3
        run(client, server)
        assert client.feeds == server.feeds
        assert all(client.reader.state(feed(name)) is FeedState.LIVE for name in names)

    def test_feeds_beyond_the_live_ones_are_asked_for_again(self) -> None:
        client = Side(limits=Limits(live_max=1), timing=Timing(pause_s=30.0))
        server = Side().store("alice", 1).store("bob", 1)
        client.reader.want(ALICE, 0.0)
        client.reader.want(BOB, 0.0)
        run(client, server)
        assert client.reader.state(ALICE) is FeedState.LIVE
        assert client.reader.state(BOB) is FeedState.RESTING
        assert client.reader.next_deadline() == 30.0
        server.append("bob")
        run(client, server)
        assert client.feeds != server.feeds
        client.advance(30.0)
        run(client, server)
        assert client.feeds == server.feeds

    @pytest.mark.parametrize(
        ("limits", "rpc"),
        [({"replies_max": 1}, {}), ({}, {"calls_max": 1}), ({}, {"calls_max": 4})],
    )
    def test_all_feeds_come_where_there_are_places_for_few(
        self, limits: dict[str, int], rpc: dict[str, int]
    ) -> None:
        """Refused feeds are asked for again, and those that are complete make room."""
        names = [f"feed {number}" for number in range(8)]
        client = Side(timing=Timing(pause_s=30.0, retry_s=600.0))
        server = Side(limits=Limits(**limits), rpc=RpcLimits(**rpc))
        for name in names:
            server.store(name, 2)
            client.reader.want(feed(name), 0.0)
        run(client, server)
        while client.feeds != server.feeds and client.now < 600.0 * len(names):
            deadline = client.reader.next_deadline()
            assert deadline is not None, "nothing is asked for any more"
            client.advance(deadline)
            run(client, server)
        assert client.feeds == server.feeds

    def test_a_peer_that_does_not_keep_live_calls_open(self) -> None:
        """Like ssb-db2, which sends the existing messages and ends."""
        client, server = Side(), Side().store("alice", 1)
        open_call = server.server.open
        server.server.open = lambda call, args: open_call(  # type: ignore[method-assign]
            call, [{**args[0], "live": False}]
        )
        client.reader.want(ALICE, 0.0)
        run(client, server)
        assert client.reader.state(ALICE) is FeedState.RESTING
        server.append("alice")
        client.advance(1.0)
        client.reader.want(BOB, 1.0)
        run(client, server)
        assert client.reader.state(BOB) is FeedState.RESTING
        client.advance(30.0)
        run(client, server)
        assert client.feeds[ALICE] == server.feeds[ALICE]
        assert [each["live"] for each in asked(server)] == [False, True, False, False]

    def test_a_peer_without_the_method(self) -> None:
        client, server = Side(timing=Timing(retry_s=600.0)), Side(offer=Manifest())
        client.reader.want(ALICE, 5.0)
        run(client, server)
        assert client.reader.state(ALICE) is FeedState.RESTING
        assert client.reader.next_deadline() == 600.0

    @pytest.mark.parametrize("again", [False, True])
    def test_what_is_forgotten_while_it_rests_is_not_asked_for(self, again: bool) -> None:
        """If wanted again, it has to wait for its turn like others."""
        timing = Timing(retry_s=600.0, patience_s=1000.0)
        client, server = Side(limits=Limits(calls_max=1), timing=timing), Side(offer=Manifest())
        client.reader.want(ALICE, 0.0)
        run(client, server)
        assert client.reader.state(ALICE) is FeedState.RESTING
        client.reader.want(BOB, 0.0)  # takes the only turn
        assert client.reader.state(BOB) is FeedState.ASKED
        client.reader.forget(ALICE, 0.0)
        if again:
            client.reader.want(ALICE, 0.0)
        assert client.reader.next_deadline() == 1000.0
        client.advance(600.0)
        assert client.reader.state(ALICE) is (FeedState.QUEUED if again else None)

    def test_a_peer_that_says_nothing(self) -> None:
        client = Side(limits=Limits(calls_max=1), timing=Timing(patience_s=60.0))
        client.reader.want(ALICE, 0.0)
        client.reader.want(BOB, 0.0)
        assert client.reader.next_deadline() == 60.0
        client.connection.data_to_send()
        client.advance(60.0)
        assert client.reader.state(ALICE) is FeedState.RESTING
        assert client.reader.state(BOB) is FeedState.ASKED
        assert b"true" in client.connection.data_to_send()

    def test_what_is_forgotten(self) -> None:
        client, server = Side(), Side().store("alice", 1)
        client.reader.want(ALICE, 0.0)
        client.reader.want(BOB, 0.0)
        run(client, server)
        client.reader.forget(ALICE, 0.0)
        client.reader.forget(ALICE, 0.0)
        server.append("alice")
        run(client, server)
        assert client.reader.state(ALICE) is None
        assert client.last_of(ALICE) == 1
        assert len(server.connection.calls) == 1

    def test_one_with_another_source(self) -> None:
        """Messages from elsewhere are not taken again, and none is missed."""
        client, server = Side(), Side().store("alice", 6)
        client.reader.want(ALICE, 0.0)
        client.feeds[ALICE] = list(messages("alice", 4))
        run(client, server)
        assert client.feeds == server.feeds
        assert client.rejected == []

    @pytest.mark.parametrize(
        "value",
        [
            None,
            5,
            {},
            "text",
            json.loads(messages("bob", 1)[0].data),
            json.loads(messages("alice", 60)[59].data),
            {**json.loads(messages("alice", 1)[0].data), "timestamp": 5},
        ],
        ids=lambda value: str(value)[:60],
    )
    def test_what_is_no_next_message(self, value: Any) -> None:
        client, server = Side(), Side()
        client.reader.want(ALICE, 0.0)
        server.connection.receive_data(client.connection.data_to_send())
        event = server.connection.next_event()
        assert isinstance(event, CallReceived)
        call = server.connection.call(event.number)
        call.send(value)
        call.send(json.loads(messages("alice", 1)[0].data))
        run(client, server)
        assert client.reader.state(ALICE) is FeedState.REFUSED
        assert client.feeds.get(ALICE, []) == []
        assert len(server.connection.calls) == 0
        client.reader.want(ALICE, 1.0)
        client.advance(10_000.0)
        assert client.connection.data_to_send() == b""

    def test_messages_that_come_before_their_turn(self) -> None:
        client, server = Side(limits=Limits(early_max=3)), Side()
        client.reader.want(ALICE, 0.0)
        server.connection.receive_data(client.connection.data_to_send())
        event = server.connection.next_event()
        assert isinstance(event, CallReceived)
        call = server.connection.call(event.number)
        for sequence in (2, 4, 3, 4, 1, 1, 6, 5):
            call.send_body(messages("alice", 6)[sequence - 1].data)
        run(client, server)
        assert client.feeds[ALICE] == list(messages("alice", 6))
        call.send_body(messages("alice", 8)[7].data)
        call.end()
        run(client, server)
        assert client.reader.state(ALICE) is FeedState.RESTING
        assert client.last_of(ALICE) == 6
        assert client.reader.next_deadline() == 600.0

    def test_a_limit_that_cuts_off_one_before_its_turn(self) -> None:
        """Among messages of one millisecond the first may come last, and so not at all."""
        client, server = Side(limits=Limits(messages_max=4)), Side().store("alice", 6)
        client.reader.want(ALICE, 0.0)
        server.connection.receive_data(client.connection.data_to_send())
        event = server.connection.next_event()
        assert isinstance(event, CallReceived)
        call = server.connection.call(event.number)
        for sequence in (1, 2, 4, 5):
            call.send_body(messages("alice", 6)[sequence - 1].data)
        call.end()
        run(client, server)
        assert client.feeds[ALICE] == list(messages("alice", 6))

    def test_a_fork(self) -> None:
        client, server = Side(), Side()
        client.feeds[ALICE] = list(messages("alice", 3))
        content, place = {"type": "post", "text": "other"}, messages("alice", 3)[1].place
        other = create_message(key("alice"), content=content, timestamp=9, last=place)
        forked = create_message(key("alice"), content=content, timestamp=9, last=other.place)
        client.reader.want(ALICE, 0.0)
        server.connection.receive_data(client.connection.data_to_send())
        event = server.connection.next_event()
        assert isinstance(event, CallReceived)
        server.connection.call(event.number).send_body(forked.data)
        run(client, server)
        assert client.reader.state(ALICE) is FeedState.REFUSED
        assert client.rejected == [ALICE]


def test_a_million_live_messages_of_a_peer_that_does_not_read() -> None:
    """Memory stays within the connection's limit, plus one read."""
    client, server = Side(), Side(rpc=RpcLimits(unsent_size_max=5000)).store("alice", 1)
    ask(client, keys=False, live=True)
    run(client, server)
    data = messages("alice", 1)[0].data
    server.feeds[ALICE] = [messages("alice", 1)[0]] * 10_000
    for first in range(2, 10_000, 7):
        server.server.extended(ALICE, first, [data] * 7)
        server.step()
    assert server.connection.unsent_size < 5000 + (1 << 16) + 2 * len(data)


class TestRequests:
    def test_there_and_back(self) -> None:
        for request in (
            HistoryRequest(feed=ALICE),
            HistoryRequest(feed=ALICE, first=7, limit=5, live=True, old=False, keys=False),
            HistoryRequest(feed=ALICE, values=False),
        ):
            assert HistoryRequest.from_args([request.to_json()]) == request

    def test_what_is_none(self) -> None:
        for fields in ({"feed": "x"}, {"first": 0}, {"limit": 0}, {"first": 2**53}):
            with pytest.raises(ValueError, match="must be"):
                HistoryRequest(**{"feed": ALICE, **fields})
        for fields in ({"feed": 5}, {"live": 1}, {"first": "1"}, {"limit": 1.0}):
            with pytest.raises(TypeError):
                HistoryRequest(**{"feed": ALICE, **fields})

    def test_limits_and_times(self) -> None:
        for made in (
            lambda: Limits(calls_max=0),
            lambda: Timing(pause_s=-1.0),
            lambda: Timing(patience_s=float("nan")),
            lambda: Limits(reads_max=0),
        ):
            with pytest.raises(ValueError, match="must be"):
                made()


def test_tables_know_every_state() -> None:
    assert set(REPLY_RULES) == set(ReplyState)
    assert set(FEED_RULES) == set(FeedState)
    assert {each for row in REPLY_RULES.values() for each in row} == set(ReplyInput)
    assert {each for row in FEED_RULES.values() for each in row} == set(FeedInput)
    assert HistoryServer.__doc__
