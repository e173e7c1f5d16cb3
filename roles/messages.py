"""The protocol's dictionary: every message of every edge, grouped by edge.

    gateway ──zmq──▶ tokenizer ──ring──▶ scheduler ──ring──▶ executor
       ▲ ▲───zmq─────────┘                 ▲    │  ◀──ring──────┘
       └─zmq── detokenizer ◀────ring───────┼────┘
                    └────────ring──────────┘
    supervisor ⇄ every role: one SEQPACKET socket each (the control edge)

Rules of the house:

* A request is named by its `uid`, a 63-bit integer that the gateway makes and never reuses, so that a
  late message about a dead request can be recognised and dropped.
* Every uid that a gateway submits ends in exactly one terminal message to that gateway: `Rejected` from
  the tokenizer, or an event with `finish_reason` set from the detokenizer.
* Per-step messages are `array_like` and carry int32/int64 little-endian buffers as `bytes`
  (`numpy.frombuffer` reads them without a copy). New fields go last and have defaults.
* Times are `time.monotonic()` seconds, which on Linux all processes of a machine share.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

FinishReason = Literal["stop", "length", "abort", "error"]
Uid = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A name or a key, where it comes from another process through a socket."""
Index = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]


# ── Values that several edges share ──────────────────────────────────────────────────────────────


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user may ask of sampling; validated where it enters, in the gateway or in `LLM`.

    The defaults are OpenAI's: temperature 1, nothing filtered. `temperature=0` is greedy.
    """

    max_tokens: int | None = None
    """Upper bound on generated tokens; None means as many as the context and the KV pool allow."""
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    """Keep the k most likely tokens; 0 or -1 keeps all."""
    min_p: float = 0.0
    """Drop tokens less likely than `min_p` times the likeliest."""
    seed: int | None = None
    """The same seed and prompt give the same tokens, whatever else runs; None draws a fresh seed."""
    stop: tuple[str, ...] = ()
    """Strings that end the output; the stop string itself is cut off."""
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    n: int = 1
    """Choices to return. With a seed each differs from the others and is reproducible."""
    best_of: int | None = None
    """Choices to generate, at least `n`; those with the highest mean log-probability are returned. With
    `use_beam_search` the number of beams."""
    presence_penalty: float = 0.0
    """Subtracted from the logit of every token that the output has already."""
    frequency_penalty: float = 0.0
    """Subtracted as often as the output has the token."""
    repetition_penalty: float = 1.0
    """Divides positive and multiplies negative logits of tokens of the prompt and the output."""
    logit_bias: dict[int, float] = {}
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    min_tokens: int = 0
    """No stop id is sampled before so many tokens; stop strings are not looked for either."""
    logprobs: int | None = None
    """Report the log-probability of each output token and of so many likeliest; 0: of the token alone."""
    prompt_logprobs: int | None = None
    """The same for the tokens of the prompt, each given those before it."""
    use_beam_search: bool = False
    length_penalty: float = 1.0
    """Beam search: a finished beam's sum of log-probabilities is divided by its length to this power."""
    early_stopping: bool | Literal["never"] = False
    """Beam search: when to stop, as in transformers."""

    @property
    def width(self) -> int:
        """Consecutive uids that a request with these parameters takes: one for each choice or beam."""
        return max(self.n, self.best_of or 0)


class Fault(msgspec.Struct, frozen=True, array_like=True):
    """Why a request failed, in the terms of OpenAI's error object."""

    status: int
    """The HTTP status a gateway answers with when nothing has been sent yet."""
    message: str
    type: str = "invalid_request_error"
    param: str | None = None
    code: str | None = None
    retry_after: int | None = None
    """Seconds after which the same request may do better."""


# ── gateway → tokenizer (zmq PUSH → PULL, one socket per tokenizer) ──────────────────────────────


class Submit(msgspec.Struct, tag="submit", frozen=True):
    """A syntactically valid request; ends with `Rejected` or with a terminal `Event`."""

    uid: Uid
    gateway: int
    """Index of the gateway that waits for the events."""
    arrived: float
    params: SamplingParams
    prompt: str | list[int] | None = None
    """Text, or token ids; None when `messages` is given."""
    messages: list[dict[str, Any]] | None = None
    """Chat turns for the model's template; content is a string by now."""
    template_kwargs: dict[str, Any] = {}
    add_generation_prompt: bool = True
    stream: bool = False
    """False: the detokenizer keeps the text and sends one terminal event."""
    echo_prompt_ids: bool = False
    """True: the terminal event carries the prompt's token ids (`return_token_ids`)."""
    echo: bool = False
    """True: the first event carries the prompt's text, decoded from its ids."""
    priority: int = 0
    """Lower goes first, as in vLLM."""
    deadline: float | None = None
    """When the request is ended with an error, `time.monotonic()`."""
    continue_final_message: bool = False
    """The last of `messages` is left open, for the answer to continue it."""
    add_special_tokens: bool | None = None
    """For text: whether the tokenizer adds its own; None: for `prompt` yes, for `messages` no."""
    generated: dict[Uid, bytes] = {}
    """By uid, int32: tokens the client has already, where the request is submitted again after a death."""
    retain: float = 0.0
    """Seconds that the detokenizer keeps the stream for a client that comes back; 0: not at all."""
    key: Uid = 0
    """63 random bits that whoever comes back for a retained stream must know."""
    cache_salt: str = ""
    """Requests share cached prefixes only with those of the same salt."""


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """The client is gone or asked for it: free the request. Unknown uids are ignored.

    Sent to the tokenizer that got the `Submit`, so that it cannot overtake it; forwarded as `Abort`.
    """

    uid: Uid


class Tokenize(msgspec.Struct, tag="tokenize", frozen=True):
    """Turn text or a conversation into ids; answered by `Tokenized` or `Rejected`."""

    uid: Uid
    gateway: int
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    template_kwargs: dict[str, Any] = {}
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool | None = None


class Detokenize(msgspec.Struct, tag="detokenize", frozen=True):
    """Turn ids into text, special tokens included; answered by `Detokenized` or `Rejected`."""

    uid: Uid
    gateway: int
    token_ids: list[int]


class CacheQuery(msgspec.Struct, tag="cache_query", frozen=True):
    """What does the prefix cache hold? Passed on as `Inspect`; answered by `CacheReport`, by way of a
    detokenizer. Not answered where one of them dies meanwhile.
    """

    uid: Uid
    gateway: int
    flush: bool = False
    """First drop all that nobody uses."""


ToTokenizer = Submit | Cancel | Tokenize | Detokenize | CacheQuery


# ── gateway → detokenizer (zmq PUSH → PULL, one socket per detokenizer) ─────────────────────────


class Attach(msgspec.Struct, tag="attach", frozen=True):
    """The client of a retained stream is back, at this gateway: send it all from token `index` on.

    Answered by `Events`, or by `Attached` where there is nothing to tell yet, or by `Detached` where the
    stream is not known, not retained or has another key.
    The gateway that had it before gets a `Detached` too.
    """

    uid: Uid
    gateway: int
    index: Index
    key: Uid


class Detach(msgspec.Struct, tag="detach", frozen=True):
    """The client of a retained stream is gone: keep what comes, and end the stream when `retain` is over."""

    uid: Uid
    gateway: int | None = None
    """Which gateway's client; ignored where another has the stream by now. None: whichever has it."""


class Keep(msgspec.Struct, tag="keep", frozen=True):
    """This choice of a retained stream has ended while others go on: keep it until its `Detach`."""

    uid: Uid
    gateway: int
    """Ignored where another has the stream by now."""


ToDetokenizer = Attach | Detach | Keep


# ── tokenizer → gateway, detokenizer → gateway (zmq PUSH → PULL, one socket per gateway) ─────────


class Rejected(msgspec.Struct, tag="rejected", frozen=True):
    """The tokenizer refuses the request; the scheduler never hears of it. Terminal."""

    uid: int
    fault: Fault


class Usage(msgspec.Struct, frozen=True, array_like=True):
    """Token counts of one request. `cached_tokens` of the prompt's tokens came from the prefix cache."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0


class Alternative(msgspec.Struct, frozen=True, array_like=True):
    """A token that could have come, and how likely it was."""

    id: int
    token: str
    """Its text alone; U+FFFD where it is part of a character."""
    raw: bytes
    """Its true bytes."""
    logprob: float
    """Natural logarithm, of the model's own distribution: before temperature, penalties and bans."""


class TokenInfo(msgspec.Struct, frozen=True, array_like=True):
    """A token with its log-probability, its rank (1 is the likeliest) and the likeliest alternatives."""

    id: int
    token: str
    raw: bytes
    logprob: float
    rank: int
    top: list[Alternative]


class Tokenized(msgspec.Struct, tag="tokenized", frozen=True):
    """The answer to `Tokenize`. Terminal."""

    uid: int
    token_ids: list[int]
    token_strs: list[str]
    max_model_len: int


class Detokenized(msgspec.Struct, tag="detokenized", frozen=True):
    """The answer to `Detokenize`. Terminal."""

    uid: int
    text: str


class Attached(msgspec.Struct, tag="attached", frozen=True):
    """The stream is at this gateway from now on, and has nothing to tell yet."""

    uid: int


class Detached(msgspec.Struct, tag="detached", frozen=True):
    """A stream is not at this gateway (any more): its client went to another, or nobody knows it."""

    uid: int
    known: bool
    """Another gateway has it."""


class CachedPrefix(msgspec.Struct, frozen=True, array_like=True):
    """A stretch of tokens that the prefix tree holds after `start` others, without a branch."""

    start: int
    tokens: int
    running: int
    """Sequences that run on it."""
    continuations: int
    """Stretches that go on after it."""
    uses_ago: int
    """How many uses of the cache ago it was used last."""


class CacheSummary(msgspec.Struct, frozen=True, array_like=True):
    """What the prefix tree holds on the device."""

    tokens: int
    nodes: int
    salts: int
    pages_free: int
    pages_cached: int
    pages_owned: int
    largest: list[CachedPrefix]


class CacheReport(msgspec.Struct, tag="cache_report", frozen=True):
    """The answer to `CacheQuery`. Terminal."""

    uid: int
    gateway: int
    summary: CacheSummary
    flushed: int = 0
    """Tokens dropped."""


class Event(msgspec.Struct, frozen=True, array_like=True):
    """Progress of one request, in order. The one with `finish_reason` is terminal and carries `usage`.

    Streaming: each event brings the text that became certain since the last one. Not streaming: one event.
    """

    uid: int
    index: int
    """Tokens delivered before this event, so that a repeated event can be recognised."""
    text: str
    token_ids: bytes = b""
    """int32: the ids of this event's tokens, those without visible text included, a stop token too."""
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    """The stop string or stop token id that matched; None for the model's own end of sequence."""
    usage: Usage | None = None
    """On the terminal event, and on the first of a stream: the prompt's tokens and those so far."""
    fault: Fault | None = None
    """Set when `finish_reason` is "error"."""
    prompt_ids: bytes = b""
    """int32: the prompt, on the terminal event of a request with `echo_prompt_ids`."""
    logprobs: list[TokenInfo] = []
    """One for each of `token_ids`, where the request asked for `logprobs`."""
    prompt_logprobs: list[TokenInfo | None] | None = None
    """On the first event, where the request asked for `prompt_logprobs`; None for the first token."""
    prompt_text: str | None = None
    """On the first event of a request with `echo`."""
    cumulative_logprob: float = 0.0
    """On the terminal event: sum over the output's tokens, where the request asked for `logprobs`, `best_of`
    or beams; a beam's is the sum its score is made of."""
    prompt_first: tuple[int, bytes] | None = None
    """With `prompt_logprobs`: id and true bytes of the prompt's first token, which has no entry there."""
    offset: int = 0
    """Characters of text delivered before this event: a repeated event may be cut differently."""


class Events(msgspec.Struct, tag="events", frozen=True):
    """All that one step brought for the requests of one gateway."""

    events: list[Event]


ToGateway = Rejected | Events | Tokenized | Detokenized | Attached | Detached | CacheReport


# ── tokenizer → scheduler (ring, one per tokenizer) ──────────────────────────────────────────────


class Controls(msgspec.Struct, frozen=True, array_like=True):
    """What changes a row's logits before sampling; few requests have it.

    Order: allowed ids, bias, bad words, minimum length, then penalties, as in vLLM.
    """

    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    bias_ids: bytes = b""
    """int32"""
    bias_values: bytes = b""
    """float32"""
    allowed_ids: bytes = b""
    """int32; empty: all are."""
    bad_words: tuple[bytes, ...] = ()
    """int32 each: a sequence whose last token is banned where the ones before it have just come."""
    min_tokens: int = 0
    min_tokens_ids: bytes = b""
    """int32: the ids that are banned before `min_tokens`."""


class Sampling(msgspec.Struct, frozen=True, array_like=True):
    """The part of `SamplingParams` the device needs; every field resolved."""

    temperature: float = 0.0
    """0 is greedy."""
    top_k: int = 0
    """0 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    """Unsigned 64-bit; the key of the counter-based generator, whose counter is the token's position."""
    controls: Controls | None = None
    logprobs: int | None = None
    """As in `SamplingParams`; also set, to 0, where only the sum is wanted."""
    prompt_logprobs: int | None = None


class Beams(msgspec.Struct, frozen=True, array_like=True):
    """Beam search: the request's `n` best beams end as the choices uid, uid + 1 ..., best first."""

    width: int
    n: int
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False


class Output(msgspec.Struct, frozen=True, array_like=True):
    """What the detokenizer needs to know; of it the scheduler reads `patient` alone."""

    gateway: int
    stream: bool
    stop: tuple[str, ...] = ()
    include_stop: bool = False
    skip_special: bool = True
    context_ids: bytes = b""
    """int32: the prompt's last few ids, so that the first token's leading space comes out right."""
    prompt_ids: bytes = b""
    """int32: the whole prompt, only where the client asked for it back, as ids, text or log-probabilities."""
    return_prompt_ids: bool = False
    echo: bool = False
    min_tokens: int = 0
    """Stop strings are not looked for before so many tokens."""
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_text: str | None = None
    """What `echo` shows: the prompt as it was written. None: what its ids say."""
    retain: float = 0.0
    key: int = 0
    """As in `Submit`."""

    @property
    def patient(self) -> bool:
        """Nothing is shown, and no text is looked for, before the end: tokens may be told some at a time."""
        return not self.stream and not self.stop


class Request(msgspec.Struct, tag="request", frozen=True, array_like=True):
    """A request in tokens, valid by itself; whether it fits the KV pool only the scheduler knows."""

    uid: int
    arrived: float
    prompt_ids: bytes
    """int32, at least one token."""
    max_tokens: int | None
    """None: as many as the context and the pool allow; 0: the prompt is computed, nothing is sampled."""
    stop_ids: tuple[int, ...]
    """Token ids that end the output: the model's own (unless `ignore_eos`), then the client's."""
    sampling: Sampling
    output: Output
    silent_stop_ids: tuple[int, ...] = ()
    """Those of `stop_ids` that are the model's own, reported with `stop_reason` None."""
    leader: int | None = None
    """For choices after the first: the uid of the first. They wait until it has computed the prompt, whose
    pages they then share."""
    priority: int = 0
    deadline: float | None = None
    beams: Beams | None = None
    generated: bytes = b""
    """int32: the first tokens of its output, known already; the stream goes on after them."""
    cache_salt: str = ""


class Abort(msgspec.Struct, tag="abort", frozen=True, array_like=True):
    """End a request wherever it is; it still ends with one `End`. Unknown uids are ignored."""

    uid: int


class Inspect(msgspec.Struct, tag="inspect", frozen=True, array_like=True):
    """A `CacheQuery`, passed on."""

    uid: int
    gateway: int
    flush: bool


ToScheduler = Request | Abort | Inspect


# ── scheduler → detokenizer (ring, one per detokenizer; a request stays with uid % detokenizers) ─


class Open(msgspec.Struct, frozen=True, array_like=True):
    """Announces a request before its first token, or before its `End` if it never has one.

    For a uid that the detokenizer knows it is a repetition, after a death: only news in `generated` count.
    """

    uid: int
    prompt_tokens: int
    output: Output
    request: bytes = b""
    """The `Request`, msgpack, for the detokenizer to keep: see `Recall`."""
    generated: bytes = b""
    """int32: the tokens that it has by now, index 0 first."""


class End(msgspec.Struct, frozen=True, array_like=True):
    """No more tokens for this request. Its last token, if any, came with this message or an earlier one."""

    uid: int
    reason: FinishReason
    stop_id: int | None = None
    """The token that ended the output, which is the last token sent; its text is not shown."""
    silent: bool = False
    """The stop token is the model's own end of sequence: `stop_reason` stays None."""
    cached_tokens: int = 0
    fault: Fault | None = None


class TokenLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probability of a new token, and of the likeliest; one per entry of `Tokens.uids` that wants it."""

    uid: int
    logprob: float
    rank: int
    top_ids: bytes = b""
    """int32[k]"""
    top: bytes = b""
    """float32[k]"""


class PromptLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """Log-probabilities of the prompt's tokens [start, start + m), each given those before it."""

    uid: int
    start: int
    """At least 1: nothing comes before the first token."""
    logprobs: bytes
    """float32[m]"""
    ranks: bytes
    """int32[m]"""
    top_ids: bytes = b""
    """int32[m, k]"""
    top: bytes = b""
    """float32[m, k]"""


class Tokens(msgspec.Struct, tag="tokens", frozen=True, array_like=True):
    """What one step brought: handled in the order opens, tokens, ends."""

    opens: list[Open] = []
    uids: bytes = b""
    """int64[n]"""
    ids: bytes = b""
    """int32[n]: one new token for each uid; a uid appears once per message."""
    indices: bytes = b""
    """int32[n]: how many tokens the request had generated before this one."""
    ends: list[End] = []
    logprobs: list[TokenLogprobs] = []
    prompt_logprobs: list[PromptLogprobs] = []
    """Complete before the request's first token or its end; they may come in parts, in order."""
    hits: list[tuple[int, int]] = []
    """(uid, cached_tokens), with the first token: an output that a stop string ends has no `End`."""
    reports: list[CacheReport] = []
    """To be passed on to their gateways."""


# ── detokenizer → scheduler (ring) ───────────────────────────────────────────────────────────────


class Held(msgspec.Struct, frozen=True, array_like=True):
    """A stream that the detokenizer has and that has not ended."""

    uid: int
    request: bytes
    """The `Request` it came with, msgpack; for a choice of a beam search, that of the whole search."""
    generated: bytes = b""
    """int32: its tokens so far."""


class Recall(msgspec.Struct, tag="recall", frozen=True, array_like=True):
    """First records of a fresh ring: what a new scheduler is to go on with. It takes no request before
    every detokenizer's last one, so that a request submitted again meets the one recalled.
    """

    streams: list[Held] = []
    last: bool = True


class StopHit(msgspec.Struct, tag="stop_hit", frozen=True, array_like=True):
    """A stop string matched: the gateway has its terminal event already; free these requests silently."""

    uids: list[int]


ToSchedulerFromDetokenizer = StopHit | Recall


# ── scheduler → executor (ring): the step protocol ───────────────────────────────────────────────


class Admit(msgspec.Struct, frozen=True, array_like=True):
    """Occupy a slot, overwriting whatever it held."""

    slot: int
    length: int
    """Tokens whose keys and values the pages already hold."""
    pages: bytes
    """int32: the slot's `Hello.state_pages`, whatever they hold, then its block table so far, in order of
    position, then of the groups of layers (`Hello.windows`); -1 where no layer looks any more."""
    sampling: Sampling
    prompt_length: int = 0
    """Tokens of the sequence that are prompt; those after them are output, also when they are replayed."""
    history: bytes = b""
    """int32: all ids of the sequence known now, where `sampling.controls` looks at them; else empty."""


class Plan(msgspec.Struct, tag="plan", frozen=True, array_like=True):
    """One step, as deltas to the slot state that the executor owns.

    Effects happen in the order of the fields: admits, copies, growth, then one forward pass over all
    chunks (in order) and all decodes (in order). A slot appears at most once among chunks and decodes.
    A chunk row feeds its `count` ids at positions [length, length + count); a decode row feeds the token
    that the slot sampled last, which may still be on the device, at position `length`.
    """

    step: int
    """1, 2, 3 ... since the executor's rings were made."""
    admits: list[Admit] = []
    copies: bytes = b""
    """int32[n, 2]: (source, destination) whole pages, copied before the forward pass."""
    growth: bytes = b""
    """int32[n, 2]: (slot, page) appended to the slot's block table. A page that no window reaches any more is
    given to others without a word."""
    chunks: bytes = b""
    """int32[n, 3]: (slot, count, samples): `samples` is 1 where the chunk is the last before sampling."""
    chunk_ids: bytes = b""
    """int32: the chunks' token ids, concatenated."""
    decodes: bytes = b""
    """int32[n]: slots that feed one token and sample the next."""
    cold: bool = False
    """No request was alive before this plan: the device's gap before it is not idleness."""
    scored: bytes = b""
    """int32[n, 2]: (chunk, label): for chunks, by their index, of sequences that want `prompt_logprobs`: the
    id that follows the chunk in the prompt, -1 where the prompt ends with it."""
    after: int = 0
    """Number of the last `Move` that must be done before this step computes; 0: none."""


class Move(msgspec.Struct, tag="move", frozen=True, array_like=True):
    """Bring the KV of whole pages from one tier to another; answered by `Moved`.

    Entry i of the buffers is one page. Moves between device and host happen in the order in which they are
    sent, beside the steps: no step in flight touches their device pages, and later ones name what they wait
    for (`Plan.after`). Moves to and from the disk happen in any order; nothing else touches their host pages
    before they are answered.
    """

    number: int
    """1, 2, 3 ... since the executor's rings were made."""
    kind: Literal["out", "in", "save", "load"]
    """Device to host, host to device, host to disk, disk to host."""
    host: bytes
    """int32[n]: pages of the host pool."""
    device: bytes = b""
    """int32[n]: for `out` and `in`."""
    keys: bytes = b""
    """uint8[n, 16]: for `save` and `load`, what the pages hold; see `scheduler.keys`."""


ToExecutor = Plan | Move


# ── executor → scheduler (ring) ──────────────────────────────────────────────────────────────────


class Hello(msgspec.Struct, tag="hello", frozen=True, array_like=True):
    """First record of a fresh ring: what the device offers. The scheduler plans nothing before it."""

    pages: int
    """KV pages in the pool, numbered 0 .. pages - 1, all of them usable."""
    host_pages: int = 0
    """Pages of host memory below the pool, numbered likewise; 0: there is no lower tier."""
    disk: bool = False
    """There is a file store below the host pages; `Shelved` tells what it holds."""
    copy_rate: float = 0.0
    """Pages per second between device and host, measured or modelled; 0: not known."""
    prefill_rate: float = 0.0
    """Tokens of a prompt that the device computes per second, measured or modelled; 0: not known."""
    windows: tuple[int, ...] = (0,)
    """Of each group of the model's layers, how many positions they look back on, their own included; 0: all.
    Lists of pages have one of each group for every `page_size` tokens, in the order of the groups."""
    state_pages: int = 0
    """Pages that a sequence has besides as long as it runs, whatever its length."""
    shelved: bytes = b""
    """uint8[n, 16]: what the file store holds, as far as that was known in time and there is room for it in a
    record; the rest comes in `Shelved`."""


class RowLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """For the sampled token at `row` of `Result.tokens`, where its slot wants log-probabilities."""

    row: int
    logprob: float
    rank: int
    top_ids: bytes = b""
    top: bytes = b""


class ChunkLogprobs(msgspec.Struct, frozen=True, array_like=True):
    """For a scored chunk: of each of its tokens but the first, then of its label if there is one."""

    chunk: int
    """Index among the plan's chunks."""
    logprobs: bytes
    ranks: bytes
    top_ids: bytes = b""
    top: bytes = b""


class Clock(msgspec.Struct, frozen=True, array_like=True):
    """When a step happened, in `time.monotonic()` seconds."""

    queued: float
    """The plan was handed to the device's stream."""
    started: float
    ended: float
    idle: float
    """Seconds the device waited before this step although there was work; 0 for a cold plan."""


class Result(msgspec.Struct, tag="result", frozen=True, array_like=True):
    """The outcome of one plan, in plan order; every plan gets exactly one."""

    step: int
    tokens: bytes
    """int32: one token for each chunk row that samples, then one for each decode row."""
    clock: Clock
    logprobs: list[RowLogprobs] = []
    prompt_logprobs: list[ChunkLogprobs] = []


class Moved(msgspec.Struct, tag="moved", frozen=True, array_like=True):
    """The outcome of a `Move`; every one gets exactly one."""

    number: int
    ok: bytes
    """uint8[n]: 1 where the page is there now, whole and verified. Only disks fail."""
    seconds: float
    """What it took, without the wait for its turn."""


class Shelved(msgspec.Struct, tag="shelved", frozen=True, array_like=True):
    """What has come to the file store and gone from it: when it is read after a start, and on its own
    account, since it keeps itself within its size. The executor's word; a `load` may still fail.
    """

    added: bytes = b""
    """uint8[n, 16]: keys, those used longest ago first."""
    gone: bytes = b""
    """uint8[n, 16]"""


ToSchedulerFromExecutor = Hello | Result | Moved | Shelved


# ── control: supervisor → role (SEQPACKET; ring descriptors travel beside the message) ───────────


class RingWire(msgspec.Struct, frozen=True):
    """One end of a ring. Its three descriptors ride along: memory, items bell, space bell, in wire order."""

    edge: str
    """"scheduler.0>executor.0": writer, reader."""


class Boot(msgspec.Struct, tag="boot", frozen=True):
    """First message to a child: who it is and how it is wired."""

    role: str
    index: int
    config: bytes
    """The resolved `Config`, msgpack."""
    run_dir: str
    """Private 0700 directory that holds the zmq sockets of this launch."""
    rings: list[RingWire]
    extra_fds: list[str] = []
    """Names of further descriptors after the rings': "board", "trace", "listen"."""


class Load(msgspec.Struct, tag="load", frozen=True):
    """Before `Boot`, while the predecessor still works: import what takes long; ends with `Loaded`."""

    config: bytes


class Rewire(msgspec.Struct, tag="rewire", frozen=True):
    """A neighbour died: these fresh rings replace the old ones, whose contents are lost."""

    rings: list[RingWire]
    killed: bool = False
    """By SIGKILL: perhaps for want of memory or because it hung, perhaps by a stranger for no reason."""


class PeerLost(msgspec.Struct, tag="peer_lost", frozen=True):
    """To gateways and detokenizers: this role instance died, and what it held is gone."""

    role: str
    index: int
    suspect: int = 0
    """The uid it was at work on, from its row on the board; 0: none in particular."""


class Stop(msgspec.Struct, tag="stop", frozen=True):
    """Finish and exit. The role has `grace` seconds before SIGTERM, then SIGKILL."""

    grace: float


class Trace(msgspec.Struct, tag="trace", frozen=True):
    """Record spans into the trace memory from now on, or no more."""

    since: int
    """Names the recording: `time.monotonic_ns()` of its start. 0: none."""


ToRole = Boot | Load | Rewire | PeerLost | Stop | Trace


# ── control: role → supervisor ───────────────────────────────────────────────────────────────────


class Progress(msgspec.Struct, tag="progress", frozen=True):
    """What a booting role is doing, for the person who waits."""

    text: str


class Loaded(msgspec.Struct, tag="loaded", frozen=True):
    """The answer to `Load`: a `Boot` is waited for."""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The role serves from now on."""

    facts: dict[str, Any] = {}
    """Shown by `stretto status`, e.g. {"pages": 4096}."""


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The role cannot go on; its own words. It exits after this."""

    error: str


class Profile(msgspec.Struct, tag="profile", frozen=True):
    """From a gateway: start a recording of this name in every role, or, with 0, end the one that runs.

    Ends with a `Trace` to the gateway, when every other role has been sent one. Its `since` is another
    than was asked for where a recording runs already, which then goes on.
    """

    since: int


class Drain(msgspec.Struct, tag="drain", frozen=True):
    """From a gateway: end in order, as on SIGTERM. The board says `draining` from then on."""


class Restart(msgspec.Struct, tag="restart", frozen=True):
    """From a gateway: replace this role's process, or, without an index, all of its processes in turn.

    No answer: the board tells (`RESTARTS`, `STARTED`). A name that is not served is ignored.
    """

    role: str
    index: int | None = None


ToSupervisor = Progress | Loaded | Ready | Failed | Profile | Drain | Restart
