import select

import pytest
import zmq

from stretto.roles.sockets import HIGH_WATER, Mailbox, Outbox, Outboxes


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


@pytest.fixture
def endpoint(tmp_path):
    return f"ipc://{tmp_path}/box"


def receive(mailbox):
    while (data := mailbox.receive()) is None:
        select.select([mailbox.fd], [], [])
        mailbox.hear()
    return data


def test_messages_arrive_in_order_and_an_empty_mailbox_says_none(context, endpoint):
    mailbox, outbox = Mailbox(context, endpoint), Outbox(context, endpoint)
    assert mailbox.receive() is None
    for i in range(100):
        outbox.send(b"%d" % i)
    assert [receive(mailbox) for _ in range(100)] == [b"%d" % i for i in range(100)]
    assert mailbox.receive() is None


def test_a_peer_that_comes_up_late_gets_what_was_sent_before(context, endpoint):
    outbox = Outbox(context, endpoint)
    outbox.send(b"early")
    assert receive(Mailbox(context, endpoint)) == b"early"


def test_a_mailbox_that_was_heard_but_not_emptied_stays_quiet(context, endpoint):
    mailbox, outbox = Mailbox(context, endpoint), Outbox(context, endpoint)
    outbox.send(b"1")
    assert receive(mailbox) == b"1"
    assert mailbox.receive() is None
    outbox.send(b"2")
    select.select([mailbox.fd], [], [])
    mailbox.hear()
    assert select.select([mailbox.fd], [], [], 0)[0] == []
    assert receive(mailbox) == b"2"


def test_an_empty_mailbox_is_not_asked_again_before_it_is_heard(context, endpoint):
    mailbox, outbox = Mailbox(context, endpoint), Outbox(context, endpoint)
    assert mailbox.receive() is None
    outbox.send(b"1")
    select.select([mailbox.fd], [], [])
    assert mailbox.receive() is None
    assert receive(mailbox) == b"1"  # hears, and again where `fd` spoke of the connection alone


def test_what_a_peer_does_not_take_blocks_and_is_kept_in_order(context, endpoint):
    outbox = Outbox(context, endpoint)
    for i in range(HIGH_WATER):
        outbox.send(b"%d" % i)
    assert not outbox.blocked
    outbox.send(b"late")
    outbox.send(b"later")
    outbox.flush()
    assert outbox.blocked
    mailbox = Mailbox(context, endpoint)
    assert [receive(mailbox) for _ in range(HIGH_WATER)] == [b"%d" % i for i in range(HIGH_WATER)]
    while outbox.blocked:
        outbox.flush()
    assert [receive(mailbox), receive(mailbox)] == [b"late", b"later"]


def test_outboxes_are_made_when_needed_and_anew_for_a_successor(context, tmp_path):
    boxes = Outboxes(context, lambda index: f"ipc://{tmp_path}/{index}", 2)
    assert [index in boxes for index in (-1, 0, 1, 2)] == [False, True, True, False]
    boxes.send(1, b"lost")
    boxes.drop(1)
    boxes.drop(0)
    boxes.send(1, b"found")
    assert receive(Mailbox(context, f"ipc://{tmp_path}/1")) == b"found"
    assert not boxes.blocked()
