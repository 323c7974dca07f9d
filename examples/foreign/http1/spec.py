"""HTTP/1.1 as the line driver and the property suite know it."""

from __future__ import annotations

from culm.machines import Config, Key, MachineType, call, keys_of
from culm.testing.spec import Attacks, Bounds, Flood, Frame, MachineSpec, Scenario, Usage, Work
from foreign.http1.connection import Connection, Limits, Role

__all__ = ["HTTP1", "SPEC"]

_HOST = [["Host", "example.com"]]


def _build(config: Config) -> Connection:
    limits = {key.name: config[key.name] for key in keys_of(Limits)}
    return Connection(role=config["role"], limits=Limits(**limits))


HTTP1 = MachineType(
    name="http1",
    build=_build,
    keys=[
        Key(name="role", type=Role, default=Role.SERVER, meaning="Which end it is."),
        *keys_of(Limits),
    ],
)


def _post(body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


SPEC = MachineSpec(
    machine=HTTP1,
    usage=Usage(
        scenarios=[
            Scenario(
                name="two requests",
                left={"role": "CLIENT"},
                script=[
                    ("left", call("request", method="GET", target="/", headers=_HOST)),
                    ("right", call("respond", status=200, body=b"hello")),
                    (
                        "left",
                        call(
                            "request",
                            method="POST",
                            target="/form",
                            headers=[*_HOST, ["Expect", "100-continue"]],
                            body=b"x" * 100,
                        ),
                    ),
                    (
                        "right",
                        call("respond", status=404, headers=[["Connection", "close"]]),
                    ),
                ],
            )
        ],
        bad_calls=[
            call("respond", status=200, body=b"to nothing"),
            call("request", method="GET", target="/", headers=[]),
            call("request", method="GET", target="/", headers=_HOST, body=b"not now"),
        ],
    ),
    attacks=Attacks(
        floods=[
            Flood(unit=b"X-More: yes\r\n", opening=b"GET / HTTP/1.1\r\n"),
            Flood(
                unit=b"1\r\nx\r\n",
                opening=b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
            ),
            Flood(unit=b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        ],
        frames=[
            Frame(
                name="a body",
                wrap=_post,
                contents={
                    "zeros": bytes,
                    "ends of lines": lambda size: b"\r\n" * (size // 2),
                },
            )
        ],
    ),
    bounds=Bounds(
        retained_max=40_000,
        tight={"message_max": 512},
        work=Work(base=6000, per_byte=60),
    ),
)
