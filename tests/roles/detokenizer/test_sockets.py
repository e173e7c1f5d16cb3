import zmq

from stretto.roles.detokenizer.sockets import HIGH_WATER, Outbox


def test_a_peer_that_comes_up_late_gets_everything_in_order(tmp_path):
    with zmq.Context() as context:
        outbox = Outbox(context, f"ipc://{tmp_path}/box")
        assert all(outbox.send(b"%d" % i) for i in range(100))
        inbox = context.socket(zmq.PULL)
        inbox.bind(f"ipc://{tmp_path}/box")
        assert [inbox.recv() for _ in range(100)] == [b"%d" % i for i in range(100)]
        context.destroy(linger=0)


def test_a_peer_that_takes_nothing_costs_a_bounded_queue(tmp_path):
    with zmq.Context() as context:
        outbox = Outbox(context, f"ipc://{tmp_path}/box")
        assert all(outbox.send(b"") for _ in range(HIGH_WATER))
        assert not outbox.send(b"")
        context.destroy(linger=0)
