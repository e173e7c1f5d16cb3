from stretto.roles.detokenizer.decoding import ByteLevelText
from stretto.roles.detokenizer.retention import PATIENCE, Retention
from stretto.roles.detokenizer.stream import Stream
from stretto.roles.messages import Attach, Open, Output


def stream(uid, retain=5.0):
    return Stream(Open(uid, 1, Output(0, True, retain=retain)), ByteLevelText({}))


def test_finished_streams_are_forgotten_when_their_time_is_over():
    retention = Retention()
    first, second = stream(1), stream(2, retain=9.0)
    retention.keep(1, first, 0.0)
    retention.keep(2, second, 0.0)
    assert retention.next == 5.0
    assert retention.over(5.0) == []
    assert (retention.finished(1), retention.finished(2)) == (None, second)
    assert (len(retention), retention.next) == (1, 9.0)


def test_the_oldest_go_first_where_there_is_no_room():
    size = stream(1).history.size
    retention = Retention(max_bytes=2 * size)
    for uid in (1, 2, 3):
        retention.keep(uid, stream(uid), 0.0)
    assert [retention.finished(uid) is not None for uid in (1, 2, 3)] == [False, True, True]
    retention.over(5.0)
    assert (len(retention), retention.next) == (0, None)


def test_streams_that_live_are_told_to_whoever_ends_them():
    retention, left = Retention(), stream(1)
    retention.leave(1, left, 2.0)
    retention.leave(2, stream(2), 2.0)
    assert left.gateway is None
    retention.back(2)
    assert retention.over(7.0) == [1]


def test_a_caller_is_served_once_and_only_with_the_key():
    retention, call = Retention(), Attach(1, 0, 0, 7)
    assert retention.wait(call, 1.0) is None
    assert retention.caller(1, 8) is None
    assert retention.caller(1, 7) == call
    assert retention.caller(1, 7) is None
    assert retention.wait(call, 1.0) is None
    assert retention.impatient(1.0 + PATIENCE) == [call]
    assert retention.next is None


def test_what_is_held_waits_until_it_is_released_by_whom_it_is_held_for():
    retention, kept = Retention(), stream(1)
    retention.keep(1, kept, 0.0)
    retention.hold(1, 4)
    assert retention.next == 5.0
    retention.hold(1, 0)
    assert (retention.next, retention.over(99.0)) == (None, [])
    retention.release(1, 4, 99.0)
    assert retention.next is None
    retention.release(1, 0, 99.0)
    retention.release(1, 0, 100.0)  # once is enough
    assert (retention.next, retention.over(104.0), len(retention)) == (104.0, [], 0)


def test_a_gateway_that_died_holds_nothing():
    retention = Retention()
    for uid in (1, 2):
        retention.keep(uid, stream(uid), 0.0)
        retention.hold(uid, 0)
    retention.finished(2).gateway = 1
    retention.release_all(0, 10.0)
    assert (retention.next, retention.over(15.0), len(retention)) == (15.0, [], 1)


def test_what_is_held_is_forgotten_where_there_is_no_room():
    retention = Retention(max_bytes=stream(1).history.size)
    retention.keep(1, stream(1), 0.0)
    retention.hold(1, 0)
    retention.keep(2, stream(2), 0.0)
    assert retention.finished(1) is None
    retention.release(1, 0, 1.0)
