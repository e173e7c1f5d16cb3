"""One frozen configuration, resolved once by the supervisor and handed to every role.

The fields *are* the command line: `supervisor.py` makes one option per field from its type, default and
description. A field with `extra={"cli": False}` in its `Meta` is filled in by `resolve`, not by the user;
one with `extra={"repeated": True}` may be given several times, and holds all that was given between commas.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Meta = msgspec.Meta


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything a role may want to know. Sizes are in tokens unless the name says otherwise."""

    model: Annotated[str, Meta(description="Directory, .gguf file or hub id; empty: the embedded model.")] = (
        ""
    )

    host: Annotated[str, Meta(description="Address to listen on.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="Port to listen on; 0 picks a free one.")] = 8000
    uds: Annotated[str, Meta(description="Listen on this Unix socket instead of a port.")] = ""
    api_key: Annotated[
        str,
        Meta(
            description="Require this bearer token, but for /health, /ping, /load, /metrics, /version and "
            "/docs."
        ),
    ] = ""
    admin_key: Annotated[
        str,
        Meta(
            description="Require this bearer token for what changes the server: profiles, flush_cache, "
            "drain, restart. Empty: the API key does, or without one being on this machine."
        ),
    ] = ""
    allowed_origins: Annotated[
        str,
        Meta(
            description="Web pages that browsers let use the server, as http://localhost:3000, with commas "
            "between them, or the option once for each; *: any. Empty: none of another origin.",
            extra={"repeated": True},
        ),
    ] = ""
    served_model_name: Annotated[str, Meta(description="Name in the API; default: the model's own.")] = ""

    max_model_len: Annotated[
        int, Meta(ge=0, description="Context length, prompt and output together; 0: the model's own.")
    ] = 0
    max_seqs: Annotated[int, Meta(ge=1, le=4096, description="Sequences that run at once.")] = 64
    max_batched_tokens: Annotated[
        int,
        Meta(
            ge=0,
            description="Tokens per step, prompt chunks and decodes together; 0: by --target-step-ms.",
        ),
    ] = 0
    target_step_ms: Annotated[
        float,
        Meta(
            gt=0,
            description="Milliseconds that a step full of prompt tokens may take, and a running request "
            "may wait for its next token, where --max-batched-tokens is left to the device's measured speed.",
        ),
    ] = 100.0
    schedule_policy: Annotated[
        Literal["prefix", "fcfs", "priority"],
        Meta(
            description="Who is admitted next: the longest cached prefix, first come first served, or the "
            "lowest priority, then the first to come. prefix heeds priorities as well, fcfs does not."
        ),
    ] = "prefix"
    max_overtakes: Annotated[
        int,
        Meta(ge=0, description="Later requests of its priority that may be admitted before a waiting one."),
    ] = 512
    page_size: Annotated[int, Meta(ge=1, le=1024, description="Tokens per KV page.")] = 16
    kv_memory: Annotated[
        str, Meta(description="KV pool, as 512MiB, 2GiB or 4096tokens; empty: chosen from free memory.")
    ] = ""
    kv_cache_dtype: Annotated[
        Literal["auto", "float32", "float16", "bfloat16", "fp8", "fp8_e4m3"],
        Meta(
            description="Type of the keys and values in the pool; auto: the compute type, but on cpu, with "
            "--quantization, float16, where twice the tokens of float32 have room. A CPU keeps float32 or "
            "float16, a GPU its compute type. fp8 (e4m3) makes room for twice the tokens of a 16-bit type, "
            "with four bits of precision, and takes the checkpoint's KV scales where it has them, else 1: on "
            "cpu, or a GPU of capability 8.9 or newer."
        ),
    ] = "auto"
    gpu_memory: Annotated[
        str,
        Meta(
            description="Memory of the GPU that weights, steps and KV pool may fill, as a share (0.9) "
            "or as 70GiB; the pool is what is left of it."
        ),
    ] = "0.9"
    host_kv_memory: Annotated[
        str,
        Meta(description="Host memory for KV that leaves the pool, as 8GiB or 100000tokens; empty: none."),
    ] = ""
    disk_kv: Annotated[
        str,
        Meta(
            description="Directory that keeps KV between starts; a stop writes what only memory has, within "
            "--grace. Empty: nothing goes to disk."
        ),
    ] = ""
    disk_kv_size: Annotated[str, Meta(description="Most that --disk-kv may take.")] = "16GiB"
    kv_write: Annotated[
        Literal["back", "through", "selective"],
        Meta(
            description="When KV is copied below the pool: when it is evicted, as soon as it is computed, or "
            "when it is used a second time."
        ),
    ] = "through"
    prefix_cache: Annotated[bool, Meta(description="Reuse the KV of earlier prompts and answers.")] = True
    overlap: Annotated[bool, Meta(description="Plan one step ahead of the device.")] = True
    graphs: Annotated[
        bool, Meta(description="On cuda: replay steps of decodes from CUDA graphs; the tokens are the same.")
    ] = True

    device: Annotated[
        Literal["auto", "cpu", "cuda", "sim"],
        Meta(description="Where the model runs; sim: nowhere, only its time passes."),
    ] = "auto"
    dtype: Annotated[
        Literal["auto", "float32", "float16", "bfloat16"],
        Meta(description="Compute type; auto: float32 on cpu, the model's own on cuda."),
    ] = "auto"
    attention_backend: Annotated[
        Literal["auto", "triton", "flashinfer"],
        Meta(
            description="On cuda: whose attention kernels; auto: triton's, with which a request's tokens do "
            "not depend on the batch. flashinfer needs that package; it plans each step on the host, so that "
            "steps are not replayed from graphs, and its sums depend on the batch."
        ),
    ] = "auto"
    quantization: Annotated[
        Literal["none", "int8", "int4"],
        Meta(
            description="On cpu: weights kept as they are stored, or rounded to 8 or 4 bits at load. "
            "With int4 the embedding has 8."
        ),
    ] = "none"
    threads: Annotated[int, Meta(ge=0, description="Compute threads on cpu; 0: one per core.")] = 0
    sim_gpu: Annotated[
        Literal["a100", "h100", "h200", "b200", "l40s"], Meta(description="The GPU that --device sim times.")
    ] = "h200"
    sim_model: Annotated[
        str, Meta(description="The model that --device sim times: a name it knows, or a config.json.")
    ] = "llama-3-8b"
    sim_step_ms: Annotated[
        float,
        Meta(ge=0, description="On --device sim every step takes so many milliseconds; 0: as modelled."),
    ] = 0.0
    sim_output_tokens: Annotated[
        int,
        Meta(ge=0, description="On --device sim outputs end by themselves after so many tokens; 0: never."),
    ] = 0

    gateways: Annotated[int, Meta(ge=1, le=16, description="Gateway processes.")] = 1
    tokenizers: Annotated[int, Meta(ge=1, le=16, description="Tokenizer processes.")] = 1
    detokenizers: Annotated[int, Meta(ge=1, le=16, description="Detokenizer processes.")] = 1

    spin_us: Annotated[
        int,
        Meta(ge=0, le=10_000, description="Microseconds a role looks at its rings before it sleeps."),
    ] = 0
    allow_unknown_fields: Annotated[
        bool, Meta(description="Ignore fields of requests that are not known, instead of refusing them.")
    ] = False
    max_body_bytes: Annotated[int, Meta(ge=1024, description="Largest request body accepted.")] = 8 << 20
    max_connections: Annotated[
        int,
        Meta(
            ge=1,
            description="Connections per gateway; above it only /health, /ping and /metrics are served.",
        ),
    ] = 4096
    idle_seconds: Annotated[
        float,
        Meta(gt=0, description="Seconds that a connection may be silent when something is due from it."),
    ] = 75.0
    max_queued_requests: Annotated[
        int,
        Meta(
            ge=0,
            description="Requests that may wait beside the --max-seqs that run, over all gateways; more are "
            "answered 429. 0: any number.",
        ),
    ] = 4096
    max_queued_tokens: Annotated[
        int, Meta(ge=0, description="Prompt tokens, as estimated, that may wait likewise; 0: any number.")
    ] = 4 << 20
    max_request_seconds: Annotated[
        float, Meta(ge=0, description="Longest time from a request's arrival to its end; 0: any.")
    ] = 0.0
    resume_seconds: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds that a WebSocket's stream waits for a client that lost its connection; "
            "0: it ends with the connection.",
        ),
    ] = 60.0
    slow_reader_seconds: Annotated[
        float, Meta(ge=0, description="Seconds after which a client that reads nothing is cut; 0: never.")
    ] = 60.0
    max_pending_bytes: Annotated[
        int, Meta(ge=0, description="Bytes kept for a client that reads slowly before it is cut; 0: any.")
    ] = 16 << 20
    ready_timeout: Annotated[float, Meta(gt=0, description="Seconds a role may take to become ready.")] = (
        600.0
    )
    heartbeat_timeout: Annotated[
        float, Meta(gt=0, description="Seconds without a heartbeat after which a role is replaced.")
    ] = 30.0
    request_stall_seconds: Annotated[
        float,
        Meta(ge=0, description="Seconds without a token after which a running request is failed; 0: never."),
    ] = 300.0
    grace: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds that running requests get to finish: after SIGTERM, after a drain, or when "
            "their gateway is replaced. A second signal ends them at once.",
        ),
    ] = 25.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="How much the roles log.")
    ] = "warning"
    log_format: Annotated[
        Literal["text", "json"], Meta(description="Log lines to read, or one JSON object per line.")
    ] = "text"

    # Filled in by the supervisor.
    model_dir: Annotated[str, Meta(description="", extra={"cli": False})] = ""
    """Local directory in Hugging Face layout: config.json, tokenizer.json, *.safetensors."""
    cache_dir: Annotated[str, Meta(description="", extra={"cli": False})] = ""
    """Where prepared models and compiled kernels are kept between starts."""


def encode(config: Config) -> bytes:
    """Config as msgpack, for `messages.Boot`."""
    return msgspec.msgpack.encode(config)


def decode(data: bytes) -> Config:
    """The inverse of `encode`."""
    return msgspec.msgpack.decode(data, type=Config)
