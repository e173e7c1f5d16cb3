"""The one exception of this role: the request is at fault, and its client is told why."""

from __future__ import annotations

from stretto.roles.messages import Fault


class Refused(Exception):
    """Raised while a prompt is prepared; becomes a `Rejected` with status 400."""

    def __init__(self, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.fault = Fault(400, message, param=param, code=code)


def check_text(text: str, param: str) -> None:
    """Raise `Refused` unless the string is Unicode text, which a lone surrogate is not."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise Refused("The text has a lone surrogate, which is not a character; remove it.", param) from error


def context_exceeded(
    context: int, prompt: int, wanted: int | None, param: str, floor: bool = False
) -> Refused:
    """The refusal of a prompt, or of a prompt and its output, that the context cannot hold.

    `prompt` counts the prompt's tokens, or bounds them from below where `floor` is set; `wanted` is
    `max_tokens`.
    """
    prompt_text = f"{'at least ' if floor else ''}{prompt}"
    if wanted is None or prompt + min(wanted, 1) > context:
        room = "" if wanted == 0 else " and needs room for at least one more"
        asked = f"your prompt has {prompt_text} tokens{room}"
        advice = "Shorten the prompt."
    else:
        asked = (
            f"you asked for {prompt + wanted} tokens: {prompt_text} in the prompt and {wanted} in the output"
        )
        advice = "Shorten the prompt or lower max_tokens."
    message = f"This model's context holds {context} tokens, but {asked}. {advice}"
    return Refused(message, param, "context_length_exceeded")
