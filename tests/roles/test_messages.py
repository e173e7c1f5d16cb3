"""The dictionary: every edge's union decodes what its writers encode, and nothing else."""

import contextlib

import msgspec
import pytest
from hypothesis import given, settings

from stretto.roles import messages as m
from stretto.tests.roles.mangling import noise

EDGES = [
    m.ToTokenizer,
    m.ToDetokenizer,
    m.ToGateway,
    m.ToScheduler,
    m.ToSchedulerFromExecutor,
    m.ToRole,
    m.ToSupervisor,
    m.Tokens,
]
SAMPLES = [
    (m.ToTokenizer, m.Submit(1, 0, 2.5, m.SamplingParams(stop=("x",)), prompt=[1, 2])),
    (m.ToTokenizer, m.Cancel(1)),
    (m.ToGateway, m.Rejected(1, m.Fault(400, "too long"))),
    (m.ToGateway, m.Events([m.Event(1, 0, "hi", b"", "stop", 7, m.Usage(1, 2))])),
    (m.ToScheduler, m.Request(1, 0.5, b"\0" * 4, 3, (2,), m.Sampling(), m.Output(0, True))),
    (m.ToScheduler, m.Abort(9)),
    (m.Tokens, m.Tokens([m.Open(1, 4, m.Output(0, False))], b"1", b"2", b"3", [m.End(1, "length")])),
    (m.ToDetokenizer, m.Attach(1, 0, 5, 7)),
    (m.ToDetokenizer, m.Keep(1, 0)),
    (m.ToGateway, m.Attached(1)),
    (m.StopHit, m.StopHit([1, 2])),
    (m.Plan, m.Plan(1, [m.Admit(0, 0, b"", m.Sampling())], decodes=b"0000", cold=True)),
    (m.ToSchedulerFromExecutor, m.Hello(12)),
    (m.ToSchedulerFromExecutor, m.Result(1, b"", m.Clock(0.0, 1.0, 2.0, 0.0))),
    (m.ToRole, m.Boot("scheduler", 0, b"", "/run", [m.RingWire("a.0>b.0")])),
    (m.ToRole, m.PeerLost("tokenizer", 1)),
    (m.ToSupervisor, m.Ready({"pages": 1})),
    (m.ToSupervisor, m.Failed("why")),
    (m.ToRole, m.Load(b"")),
    (m.ToSupervisor, m.Loaded()),
    (m.ToSupervisor, m.Drain()),
    (m.ToSupervisor, m.Restart("gateway", 1)),
]


@pytest.mark.parametrize(("edge", "message"), SAMPLES)
def test_a_message_survives_its_edge(edge, message):
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=edge) == message


@pytest.mark.parametrize("edge", EDGES)
@pytest.mark.parametrize(
    "garbage", [b"", b"\xc1", b"\x93\x01\x02\x03", msgspec.msgpack.encode({"type": "no such"})]
)
def test_garbage_is_refused(edge, garbage):
    with pytest.raises(msgspec.MsgspecError):
        msgspec.msgpack.decode(garbage, type=edge)


@settings(max_examples=500, deadline=None)
@given(noise(*(message for _, message in SAMPLES)))
def test_noise_is_a_message_or_refused_whatever_the_edge(data):
    for edge in EDGES:
        with contextlib.suppress(msgspec.DecodeError):
            msgspec.msgpack.decode(data, type=edge)


@pytest.mark.parametrize("field", [{"uid": -1}, {"uid": 1 << 63}, {"index": -1}, {"key": 1 << 63}])
def test_names_and_numbers_beyond_their_bounds_are_refused(field):
    attach = {"type": "attach", "uid": 1, "gateway": 0, "index": 0, "key": 1, **field}
    with pytest.raises(msgspec.DecodeError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(attach), type=m.ToDetokenizer)


def test_a_steady_decode_plan_is_a_few_bytes_per_sequence():
    plan = m.Plan(10**6, decodes=bytes(4 * 256))
    assert len(msgspec.msgpack.encode(plan)) < 5 * 256


def test_an_unknown_sampling_field_is_refused_by_name():
    with pytest.raises(msgspec.ValidationError, match="temprature"):
        msgspec.json.decode(b'{"temprature": 1}', type=m.SamplingParams)
