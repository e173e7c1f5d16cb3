import select

import pytest
import zmq

from stretto.roles.sockets import HIGH_WATER, Mailbox, Outbox


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
    assert all(outbox.send(b"%d" % i) for i in range(100))
    assert [receive(mailbox) for _ in range(100)] == [b"%d" % i for i in range(100)]
    assert mailbox.receive() is None


def test_a_peer_that_comes_up_late_gets_what_was_sent_before(context, endpoint):
    outbox = Outbox(context, endpoint)
    assert outbox.send(b"early")
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


def test_a_peer_that_takes_nothing_costs_a_bounded_queue(context, endpoint):
    outbox = Outbox(context, endpoint)
    assert all(outbox.send(b"") for _ in range(HIGH_WATER))
    assert not outbox.send(b"")
