"""Where the server listens."""

import socket

import pytest

from stretto.roles.actor import SetupError
from stretto.roles.config import Config
from stretto.roles.listening import listen


def test_a_free_port_is_taken_at_once():
    with listen(Config(port=0)) as sock, socket.create_connection(sock.getsockname()):
        assert not sock.getblocking()


def test_a_taken_port_is_named_with_what_to_do():
    with listen(Config(port=0)) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(SetupError, match=rf"127\.0\.0\.1:{port}.*--port"):
            listen(Config(port=port))


def test_a_socket_that_a_dead_server_left_is_replaced(tmp_path):
    path = tmp_path / "http.sock"
    listen(Config(uds=str(path))).close()
    assert path.is_socket()
    with listen(Config(uds=str(path))), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_socket_that_is_served_is_left_alone(tmp_path):
    path = tmp_path / "http.sock"
    with listen(Config(uds=str(path))), pytest.raises(SetupError, match="--uds"):
        listen(Config(uds=str(path)))
    assert path.is_socket()


def test_another_file_is_left_alone(tmp_path):
    path = tmp_path / "precious"
    path.write_text("mine")
    with pytest.raises(SetupError, match="precious"):
        listen(Config(uds=str(path)))
    assert path.read_text() == "mine"
