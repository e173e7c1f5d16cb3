"""Many requests on one socket: each gets its own frames, and its own end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stretto.roles.client.aio import AsyncClient, body
from stretto.roles.client.background import BackgroundLoop
from stretto.roles.client.errors import StrettoError
from stretto.roles.messages import SamplingParams

Run = Callable[[Callable[[AsyncClient], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def run(uds: str) -> Run:
    """Runs a scenario with a client of the fake server."""

    async def main(scenario: Callable[[AsyncClient], Coroutine[Any, Any, Any]]) -> Any:
        async with AsyncClient(uds=uds) as client:
            return await scenario(client)

    return lambda scenario: asyncio.run(main(scenario))


def test_a_stream_yields_its_deltas_and_then_has_its_completion(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        stream = client.stream("say Pa ris", return_token_ids=True)
        deltas = [delta async for delta in stream]
        assert "".join(delta.text for delta in deltas) == "Paris"
        assert [id for delta in deltas for id in delta.token_ids] == [0, 1]
        assert stream.completion is not None
        assert stream.completion.text == "Paris"
        assert stream.completion.token_ids == [0, 1]
        assert stream.completion.prompt_token_ids == [7, 8]
        assert stream.completion.finish_reason == "stop"
        assert stream.completion.usage.total_tokens == 4
        assert stream.completion.usage.cached_tokens == 1

    run(scenario)


def test_streams_interleave_on_one_connection(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        streams = [client.stream(f"hang {word}") for word in "abc"]
        firsts = [await stream.next() for stream in reversed(streams)]
        assert [delta.text for delta in firsts if delta] == ["c", "b", "a"]
        streams[1].cancel()
        assert (await streams[1].result()).text == "b"
        assert (await client.stream("say d").result()).text == "d"
        assert streams[0].completion is None

    run(scenario)
    assert server.connections == 1
    assert server.most_live == 3


def test_generate_asks_for_the_answer_in_one_piece(server: Any, run: Run) -> None:
    completion = run(lambda client: client.generate(messages=[{"role": "user", "content": "say hi"}], seed=3))
    assert completion.text == "hi"
    assert completion.token_ids == []
    messages = [{"role": "user", "content": "say hi"}]
    assert server.hear("generate")["request"] == {"messages": messages, "stream": False, "seed": 3}


def test_a_cancelled_request_ends_with_abort_and_its_text(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        stream = client.stream("hang so far")
        async for _ in stream:
            stream.cancel()
        assert stream.completion is not None
        assert stream.completion.finish_reason == "abort"
        assert stream.completion.text == "sofar"

    run(scenario)


def test_leaving_the_iteration_cancels(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        stream = client.stream("hang a")
        async for _ in stream:
            break
        assert (await asyncio.to_thread(server.hear, "cancel"))["id"] == stream.id

    run(scenario)


def test_dropping_a_stream_cancels(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        client.stream("hang a")
        await asyncio.to_thread(server.hear, "cancel")

    run(scenario)


def test_a_cancelled_task_cancels_its_request(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        task = asyncio.create_task(client.generate("hang a"))
        await asyncio.to_thread(server.hear, "generate")
        task.cancel()
        await asyncio.to_thread(server.hear, "cancel")

    run(scenario)


def test_an_error_ends_only_its_own_request(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        good, bad = client.stream("say fine"), client.stream("refuse this")
        with pytest.raises(StrettoError, match="not that") as caught:
            await bad.result()
        assert (caught.value.type, caught.value.param) == ("invalid_request_error", "prompt")
        assert (await good.result()).text == "fine"

    run(scenario)


def test_what_came_before_an_error_can_be_read(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        stream = client.stream("refuse half")
        delta = await stream.next()
        assert delta is not None
        assert delta.text == "half"
        with pytest.raises(StrettoError, match="not that"):
            await stream.next()

    run(scenario)


@pytest.mark.parametrize(
    ("prompt", "code", "connections"),
    [("drop", "connection_lost", 4), ("garble", "protocol", 2), ("huge", "request_too_large", 2)],
)
def test_a_lost_connection_fails_what_was_live_and_is_made_again(
    server: Any, run: Run, prompt: str, code: str, connections: int
) -> None:
    async def scenario(client: AsyncClient) -> None:
        streams = [client.stream("hang a"), client.stream(prompt)]
        for stream in streams:
            with pytest.raises(StrettoError) as caught:
                await stream.result()
            assert caught.value.code == code
        assert (await client.generate("say again")).text == "again"

    run(scenario)
    assert server.connections == connections


def test_a_stream_goes_on_after_its_connection_was_lost(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        whole = client.generate("cut a b c d", stream=False)
        told = client.generate("cut a b c d", stream=True)
        assert [(await answer).text for answer in (whole, told)] == ["abcd", "abcd"]

    run(scenario)
    resumes = [server.hear("resume") for _ in range(2)]
    assert sorted(frame["tokens"] for frame in resumes) == [[], [1]]
    assert {frame["stream"] for frame in resumes} == {"handle"}


def test_what_was_cancelled_stays_so(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        stream = client.stream("cut a b")
        await stream.next()
        stream.cancel()
        await stream.result()

    run(scenario)
    assert [server.hear(kind)["type"] for kind in ("resume", "cancel")] == ["resume", "cancel"]


def test_a_stream_that_is_gone_begins_anew_if_nothing_of_it_was_told(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        assert (await client.generate("lose a b", stream=False)).text == "ab"
        with pytest.raises(StrettoError) as caught:
            await client.generate("lose c d", stream=True)
        assert caught.value.code == "stream_not_found"

    run(scenario)


def test_unread_deltas_merge_into_one(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        lazy = client.stream("say a b c")
        await client.stream("say x y z w").result()
        assert [delta.text async for delta in lazy] == ["abc"]

    run(scenario)


def test_nothing_listening_is_told_with_the_address_and_the_remedy(run: Run, uds: str) -> None:
    with pytest.raises(StrettoError, match=r"stretto serve") as caught:
        run(lambda client: client.generate("say hi"))
    assert caught.value.code == "cannot_connect"
    assert uds in caught.value.message


def test_the_key_is_sent_and_a_wrong_one_is_told(fake: Any, uds: str, background: BackgroundLoop) -> None:
    background.call(fake.FakeServer(api_key="secret").open(uds))

    async def ask(key: str) -> str:
        async with AsyncClient(uds=uds, api_key=key) as client:
            return (await client.generate("say hi")).text

    assert asyncio.run(ask("secret")) == "hi"
    with pytest.raises(StrettoError, match="wrong key") as caught:
        asyncio.run(ask("guess"))
    assert caught.value.status == 401


def test_close_fails_live_requests(server: Any, run: Run) -> None:
    async def scenario(client: AsyncClient) -> None:
        stream = client.stream("hang a")
        await stream.next()
        await client.close()
        with pytest.raises(StrettoError, match="closed"):
            await stream.result()

    run(scenario)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_what_json_cannot_carry_is_refused_at_once(server: Any, run: Run, value: object) -> None:
    async def scenario(client: AsyncClient) -> None:
        with pytest.raises(StrettoError, match="JSON") as caught:
            client.stream("say hi", temperature=value)
        assert caught.value.status == 400

    run(scenario)


def test_a_body_holds_the_parameters_that_are_set_and_fields_win() -> None:
    params = SamplingParams(max_tokens=8, temperature=0.5, stop=("x",))
    assert body([1, 2], None, params, {"temperature": 0, "model": "m"}) == {
        "prompt": [1, 2],
        "model": "m",
        "max_tokens": 8,
        "temperature": 0,
        "stop": ("x",),
    }


def test_a_body_asks_for_logprobs_in_the_terms_of_its_api() -> None:
    params = SamplingParams(logprobs=2)
    assert body("hi", None, params, {}) == {"prompt": "hi", "logprobs": 2}
    assert body(None, [{}], params, {}) == {"messages": [{}], "logprobs": True, "top_logprobs": 2}


@pytest.mark.parametrize("messages", [None, [{"role": "user", "content": "hi"}]])
def test_a_body_has_either_a_prompt_or_messages(messages: list[dict[str, str]] | None) -> None:
    with pytest.raises(ValueError, match="not both"):
        body("hi" if messages else None, messages, None, {})
