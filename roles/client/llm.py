"""Offline batch generation: the same role graph that serves, started for this object alone."""

from __future__ import annotations

import queue
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from stretto.roles.client import batch
from stretto.roles.client.aio import AsyncClient, Message
from stretto.roles.client.background import BackgroundLoop
from stretto.roles.client.errors import ConnectionFailed
from stretto.roles.client.frames import Completion
from stretto.roles.client.outputs import RequestOutput, request_output
from stretto.roles.client.progress import progress
from stretto.roles.client.prompts import PromptLike, as_conversations, as_params, as_prompts
from stretto.roles.client.server import SUPERVISOR, Server
from stretto.roles.config import Config
from stretto.roles.messages import SamplingParams

AHEAD = 4
"""Requests sent per sequence that can run at once: enough for a full batch and a queue to choose from."""

Params = SamplingParams | Sequence[SamplingParams] | None


class LLM:
    """A model for batch jobs, scripts and notebooks.

    >>> with LLM(max_seqs=8) as llm:
    ...     outputs = llm.generate(["The capital of France is"], SamplingParams(max_tokens=8))
    ...     print(outputs[0].outputs[0].text)

    Arguments and errors are those of `stretto.roles.client.server.Server`. The server ends with this object,
    or with this process, however that ends. A call that fails or is interrupted leaves the object usable.
    """

    def __init__(
        self, model: str = "", *, command: Sequence[str] = SUPERVISOR, quiet: bool = False, **options: Any
    ) -> None:
        self._server = Server(model, command=command, quiet=quiet, **options)
        self._client = AsyncClient(uds=self._server.uds)
        self._background = BackgroundLoop()
        self._ahead = _ahead(self._server.config)
        self._finalizer = weakref.finalize(self, _close, self._background, self._server)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the server and wait until it is gone."""
        self._finalizer()

    def generate(
        self,
        prompts: PromptLike | Sequence[PromptLike],
        sampling_params: Params = None,
        use_tqdm: bool | Callable[..., Any] = True,
        **fields: Any,
    ) -> list[RequestOutput]:
        """Continue prompts; the outputs are in the order of the prompts.

        Args:
            prompts: text or token ids, or a sequence of those, or of vLLM's prompt dictionaries.
            sampling_params: for all prompts, or one for each; None: the defaults of `SamplingParams`.
            use_tqdm: show a progress bar; or the class to make it of.
            fields: other fields of the HTTP API's `/v1/completions` request, for all prompts.

        Raises:
            TypeError, ValueError: something is not a prompt, or the counts differ; nothing was sent.
            StrettoError: a prompt was refused, and is named by its place ("prompt 3: ..."); the rest of the
                call is cancelled.
            ConnectionFailed: the server is gone.
        """
        inputs = as_prompts(prompts)
        requests = (
            {"prompt": prompt, "params": params, **fields}
            for prompt, params in zip(inputs, as_params(sampling_params, len(inputs)), strict=True)
        )
        texts = [prompt if isinstance(prompt, str) else None for prompt in inputs]
        return self._run(requests, texts, use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: Params = None,
        use_tqdm: bool | Callable[..., Any] = True,
        **fields: Any,
    ) -> list[RequestOutput]:
        """Answer a conversation, or several, through the model's chat template; otherwise as `generate`.

        `fields` are those of `/v1/chat/completions`, e.g. `chat_template_kwargs`.
        """
        inputs = as_conversations(messages)
        requests = (
            {"messages": conversation, "params": params, **fields}
            for conversation, params in zip(inputs, as_params(sampling_params, len(inputs)), strict=True)
        )
        return self._run(requests, [None] * len(inputs), use_tqdm)

    def _run(
        self,
        requests: Iterable[dict[str, Any]],
        texts: list[str | None],
        use_tqdm: bool | Callable[..., Any],
    ) -> list[RequestOutput]:
        outputs: list[Any] = [None] * len(texts)
        arrivals: queue.SimpleQueue[tuple[int, Completion] | None] = queue.SimpleQueue()
        asking = ({**request, "return_token_ids": True} for request in requests)
        ahead = min(self._ahead, len(texts))
        job = self._background.start(
            batch.run(self._client, asking, ahead, lambda place, answer: arrivals.put((place, answer)))
        )
        job.add_done_callback(lambda _: arrivals.put(None))
        try:
            with progress(len(texts), use_tqdm) as advance:
                while (arrival := arrivals.get()) is not None:
                    place, answer = arrival
                    outputs[place] = request_output(place, texts[place], answer)
                    advance(answer.usage)
            self._background.wait(job)
        except ConnectionFailed as error:
            raise self._why(error) from error
        finally:
            job.cancel()
        return outputs

    def _why(self, error: ConnectionFailed) -> ConnectionFailed:
        """A lost connection to a server that died is told with how it died."""
        obituary = self._server.obituary()
        return ConnectionFailed(obituary, "server_died") if obituary else error


def _ahead(config: Config) -> int:
    """Requests that are sent at once: what the server's queue takes in any case."""
    ahead = AHEAD * config.max_seqs
    return min(ahead, config.max_seqs + config.max_queued_requests) if config.max_queued_requests else ahead


def _close(background: BackgroundLoop, server: Server) -> None:
    background.close()
    server.close()
