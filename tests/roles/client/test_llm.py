"""Batches over a server of one's own, which here is a fake one."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stretto.roles.client.errors import StrettoError
from stretto.roles.client.llm import LLM
from stretto.roles.messages import SamplingParams


class Bar:
    """A progress bar, and the class to make it of."""

    total, done, postfix = 0, 0, ""

    def __call__(self, total: int, **_: Any) -> Any:
        self.total = total
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...

    def set_postfix_str(self, text: str, refresh: bool) -> None:
        self.postfix = text

    def update(self, count: int) -> None:
        self.done += count


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    command = (sys.executable, str(Path(__file__).with_name("fake.py")))
    with LLM("tiny", command=command, quiet=True, max_seqs=2) as llm:
        yield llm


def test_outputs_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = [f"say {place}" + " x" * (place % 7) for place in range(50)]
    outputs = llm.generate(prompts, use_tqdm=False)
    assert [output.prompt for output in outputs] == prompts
    assert [output.outputs[0].text for output in outputs] == [p[4:].replace(" ", "") for p in prompts]
    assert [output.request_id for output in outputs] == [str(place) for place in range(50)]


def test_an_output_has_the_fields_that_users_of_vllm_know(llm: LLM) -> None:
    (output,) = llm.generate("say a b", SamplingParams(max_tokens=2), use_tqdm=False)
    assert output.prompt_token_ids == [7, 8]
    assert output.num_cached_tokens == 1
    assert output.finished
    (answer,) = output.outputs
    assert (answer.index, answer.text, answer.token_ids) == (0, "ab", [0, 1])
    assert (answer.finish_reason, answer.stop_reason) == ("stop", None)


@pytest.mark.parametrize(
    ("prompts", "texts"),
    [
        ("say one", ["one"]),
        ([3, 4], ["34"]),
        ([[3], [4, 5]], ["3", "45"]),
        ([{"prompt": "say d"}, {"prompt_token_ids": [6]}], ["d", "6"]),
        ([], []),
    ],
)
def test_prompts_are_text_or_ids_one_or_many(llm: LLM, prompts: Any, texts: list[str]) -> None:
    assert [output.outputs[0].text for output in llm.generate(prompts, use_tqdm=False)] == texts


def test_chat_takes_one_conversation_or_many(llm: LLM) -> None:
    hello = [{"role": "user", "content": "say hello"}]
    assert [o.outputs[0].text for o in llm.chat(hello, use_tqdm=False)] == ["hello"]
    assert [o.outputs[0].text for o in llm.chat([hello, hello], use_tqdm=False)] == ["hello", "hello"]


def test_a_refused_prompt_is_named_and_the_next_call_works(llm: LLM) -> None:
    with pytest.raises(StrettoError, match="prompt 2: not that"):
        llm.generate(["say a", "hang b", "refuse", "hang c"], use_tqdm=False)
    assert llm.generate("say again", use_tqdm=False)[0].outputs[0].text == "again"


def test_an_interrupt_cancels_the_batch_and_leaves_it_usable(llm: LLM) -> None:
    class CtrlC(Bar):
        def update(self, count: int) -> None:
            main = threading.main_thread().ident or 0
            threading.Thread(target=signal.pthread_kill, args=(main, signal.SIGINT)).start()

    with pytest.raises(KeyboardInterrupt):
        llm.generate(["say a", "hang b", "hang c"], use_tqdm=CtrlC())
    assert llm.generate("say again", use_tqdm=False)[0].outputs[0].text == "again"


def test_what_is_no_prompt_is_named_before_anything_is_sent(llm: LLM) -> None:
    with pytest.raises(TypeError, match="prompt 1 must be text or a list of token ids"):
        llm.generate(["hang a", 1.5], use_tqdm=False)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="3 sampling parameters for 1 prompts"):
        llm.generate("hang a", [SamplingParams()] * 3, use_tqdm=False)


def test_it_works_inside_a_running_event_loop(llm: LLM) -> None:
    async def notebook_cell() -> str:
        return llm.generate("say hi", use_tqdm=False)[0].outputs[0].text

    assert asyncio.run(notebook_cell()) == "hi"


def test_the_progress_bar_counts_requests_and_tokens(llm: LLM) -> None:
    bar = Bar()
    llm.generate(["say a", "say b", "say c"], use_tqdm=bar)
    assert (bar.total, bar.done) == (3, 3)
    assert bar.postfix.endswith("tok/s")


def test_a_server_that_dies_is_told_with_its_last_words(command: tuple[str, ...]) -> None:
    llm = LLM("tiny", command=command, quiet=True)
    llm._server._child._process.kill()
    llm._server._child._process.wait()
    with pytest.raises(StrettoError, match=r"gone \(SIGKILL\)[^$]*loading weights"):
        llm.generate("say hi", use_tqdm=False)
    llm.close()


def test_nothing_is_left_when_the_script_ends_without_closing(command: tuple[str, ...]) -> None:
    script = textwrap.dedent(f"""
        from stretto.roles.client import LLM
        llm = LLM("tiny", command={command!r})
        assert llm.generate("say hi", use_tqdm=False)[0].outputs[0].text == "hi"
        print(llm._server.uds, llm._server._child._process.pid)
    """)
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    uds, pid = ended.stdout.split()
    assert not Path(uds).parent.exists()
    assert not Path(f"/proc/{pid}").exists()
    assert ended.stderr == "loading weights\n"
