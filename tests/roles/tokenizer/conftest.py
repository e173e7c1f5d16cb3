import json

import pytest
from hypothesis import HealthCheck, settings
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from stretto.roles.tokenizer.bound import byte_names

settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

CHAT = (
    "{{ bos_token }}{% for m in messages %}{{ '[' + m.role + ']' + m.content }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


@pytest.fixture
def small_dir(tmp_path):
    """A byte-level model directory: 256 bytes, " ab" merged, <s> = 257, </s> = 258; context 32."""
    vocabulary = {name: i for i, name in enumerate([*byte_names(), "Ġa", "Ġab"])}
    encoder = Tokenizer(models.BPE(vocabulary, [("Ġ", "a"), ("Ġa", "b")]))
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    encoder.add_special_tokens([AddedToken(t, normalized=False) for t in ("<s>", "</s>")])
    encoder.save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, "tokenizer_config.json", bos_token="<s>", eos_token="</s>", chat_template=CHAT)
    write(tmp_path, "config.json", vocab_size=264, max_position_embeddings=32, eos_token_id=259)
    write(tmp_path, "generation_config.json", eos_token_id=[259, 5])
    return tmp_path


def write(directory, name, **values):
    (directory / name).write_text(json.dumps(values))
