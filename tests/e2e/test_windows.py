"""Models whose layers look back through windows, many windows into a context; transformers is the oracle."""

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import transformers
from e2e.serving import MODEL, Server

SIZES = {
    "vocab_size": 49152,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 1024,
    "sliding_window": 40,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": True,
}
SOME = {"use_sliding_window": True, "layer_types": [*["sliding_attention"] * 3, "full_attention"]}
KINDS = {"all": ("Mistral", {}), "some": ("Qwen3", {"head_dim": 16, **SOME})}
POOL = {"all": "400tokens", "some": "800tokens"}
"""Of the first, less than one of the contexts; of the second, as much as one needs with three more."""


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def path(kind, model_dir, tmp_path_factory):
    """A random model, with the tokenizer of the embedded one."""
    name, more = KINDS[kind]
    path = tmp_path_factory.mktemp(name)
    torch.manual_seed(7)
    config = getattr(transformers, f"{name}Config")(**SIZES, **more)
    model = getattr(transformers, f"{name}ForCausalLM")(config).float()
    for parameter in model.parameters():
        parameter.data.normal_(0.0, 0.3)
    model.save_pretrained(path)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (path / file).symlink_to(model_dir / file)
    return path


@pytest.fixture(scope="module")
def server(kind, path):
    sizes = ["--kv-memory", POOL[kind], "--max-seqs", "8", "--max-batched-tokens", "64"]
    server = Server(str(path), "--served-model-name", MODEL, *sizes).wait_ready()
    yield server
    server.stop()


def ask(server, prompt, **fields):
    answer = server.complete(prompt, ignore_eos=True, **fields)
    return answer["choices"][0]["token_ids"], answer["usage"]


def regret(model, prompt, tokens):
    """By how much the best logit exceeds that of the token, at worst."""
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
    chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
    return (logits.max(dim=1).values - chosen).max().item()


def test_tokens_are_those_of_transformers_alone_together_and_continued(server, path):
    rng = random.Random(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    prompts = [[rng.randrange(3, 49000) for _ in range(length)] for length in (10, 150, 333, 400)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda prompt: ask(server, prompt, max_tokens=100)[0], prompts))
    for prompt, tokens in zip(prompts, together, strict=True):
        assert ask(server, prompt, max_tokens=100)[0] == tokens
        assert regret(model, prompt, tokens) < 1e-3
    longer = [*prompts[3], *together[3], 5, 6, 7]
    tokens, usage = ask(server, longer, max_tokens=20)
    assert usage["prompt_tokens_details"]["cached_tokens"] == len(longer) - 4
    assert regret(model, longer, tokens) < 1e-3
