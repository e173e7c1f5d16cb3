"""The command line is the configuration."""

from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from stretto.roles.config import Config
from stretto.roles.options import config_options
from stretto.roles.origins import origins


@click.command()
@config_options(skip=("model",))
def command(**options: Any) -> None:
    click.echo(msgspec.json.encode(Config(**options)))


def run(*args: str) -> Config:
    result = CliRunner().invoke(command, args)
    assert result.exit_code == 0, result.output
    return msgspec.json.decode(result.output, type=Config)


def test_no_options_give_the_defaults() -> None:
    assert run() == Config()


def test_every_kind_of_field_can_be_set() -> None:
    config = run("--port", "9", "--no-overlap", "--device", "cpu", "--grace", "1.5", "--kv-memory", "1GiB")
    assert config == Config(port=9, overlap=False, device="cpu", grace=1.5, kv_memory="1GiB")


def test_origins_may_be_given_one_by_one_or_together() -> None:
    each = run("--allowed-origins", "http://a", "--allowed-origins", "http://b,http://c")
    assert each == run("--allowed-origins", "http://a,http://b,http://c")
    assert origins(each.allowed_origins) == ("http://a", "http://b", "http://c")


def test_every_public_field_has_help() -> None:
    text = CliRunner().invoke(command, ["--help"]).output
    for field in msgspec.structs.fields(Config):
        public = field.name not in ("model", "model_dir", "cache_dir")
        assert ("--" + field.name.replace("_", "-") in text) == public


@pytest.mark.parametrize(
    "args", [["--port", "70000"], ["--max-seqs", "0"], ["--device", "abacus"], ["--grace", "-1"]]
)
def test_a_value_out_of_bounds_is_refused(args: list[str]) -> None:
    result = CliRunner().invoke(command, args)
    assert result.exit_code == 2
    assert args[0] in result.output
