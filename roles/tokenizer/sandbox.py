"""The sandbox in which a model's chat template runs: a program of strangers, on words of strangers.

Jinja's own sandbox keeps it from Python's insides. This one also bounds its time and what it makes, whichever
thread it runs on: every pass of a loop, branch or macro spends from the rendering's `Budget`, and so does
every text and list that is made. Whatever would be large is refused before it is made.

One operation of Python's own may still take its time (the text of lists nested in themselves): then the
supervisor finds the role without a heartbeat, and the request at its second death is poison.
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable, Iterable
from typing import Any

import jinja2
from jinja2 import filters, nodes
from jinja2.compiler import CodeGenerator, Frame, optimizeconst
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from stretto.roles.tokenizer.budget import Budget, Exceeded

MAX_BITS = 1 << 12
"""Of an integer that is multiplied or raised to a power."""

_WIDE = re.compile(r"\d{4}|[*{]")
"""In a format's specification: a width that is large, or is given by an argument."""
_SPECIFICATION = re.compile(r"%[^a-zA-Z%]*")
"""Of the formats that the operator `%` takes."""
_parse = string.Formatter().parse
_PADDING = frozenset({"center", "ljust", "rjust", "zfill"})
_UNBOUNDED = frozenset({"expandtabs", "translate"})


class Spending(Context):
    """A rendering's variables, with its budget."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.budget = Budget()

    def derived(self, locals: dict[str, Any] | None = None) -> Context:
        """The context of a block inside."""
        inner = super().derived(locals)
        assert isinstance(inner, Spending)
        inner.budget = self.budget
        return inner


class Generator(CodeGenerator):
    """Compiles templates so that they spend. The names it binds hide Jinja's own and Python's `str`."""

    def write_commons(self) -> None:
        """At the head of the template and of each of its blocks."""
        super().write_commons()
        for name, method in (
            ("tick", "tick"),
            ("made", "made"),
            ("str", "text"),
            ("concat", "concat"),
            ("str_join", "join"),
        ):
            self.writeline(f"{name} = context.budget.{method}")

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """The body of a loop, a branch, a macro."""
        self.writeline("tick()")
        super().blockvisit(nodes, frame)

    @optimizeconst
    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:
        """`left + right`. Of a longer sum only the whole is looked at: a template has so many words."""
        self.write("made(")
        self._sum(node, frame)
        self.write(")")

    def _sum(self, node: nodes.Expr, frame: Frame) -> None:
        if not isinstance(node, nodes.Add):
            self.visit(node, frame)
            return
        self.write("(")
        self._sum(node.left, frame)
        self.write(" + ")
        self._sum(node.right, frame)
        self.write(")")

    def visit_Filter(self, node: nodes.Filter, frame: Frame) -> None:
        """`value | filter`."""
        self.write("made(")
        super().visit_Filter(node, frame)
        self.write(")")


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of templates; see above."""

    code_generator_class = Generator
    context_class = Spending
    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        del self.globals["lipsum"]
        self.filters |= {
            "batch": _foreseen(filters.do_batch),
            "center": _foreseen(filters.do_center),
            "format": _format,
            "indent": _foreseen(filters.do_indent),
            "join": _join,
            "replace": _replace,
            "slice": _foreseen(filters.sync_do_slice),
            "string": _string,
            "wordwrap": _foreseen(functools.partial(filters.do_wordwrap, self)),
        }

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """`*`, `**` and `%`, which make much of little."""
        match operator, left, right:
            case ("*", int() as count, str() | list() | tuple() as sized) | (
                "*",
                str() | list() | tuple() as sized,
                int() as count,
            ):
                _budget(context).foresee(len(sized) * count)
            case ("*", int(), int()) if left.bit_length() + right.bit_length() > MAX_BITS:
                raise Exceeded("it makes too large a number")
            case ("**", int(), int()) if left.bit_length() * right > MAX_BITS:
                raise Exceeded("it makes too large a number")
            case "%", str(), _:
                _check_widths(_SPECIFICATION.findall(left))
        return _budget(context).made(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __callee: Any, *args: Any, **kwargs: Any) -> Any:
        """Call something: a macro, a method, a function of ours."""
        budget, owner = _budget(__context), getattr(__callee, "__self__", None)
        if isinstance(owner, str):
            match __callee.__name__, args:
                case "join", (values,):
                    return budget.made(budget.join(values, owner))
                case "replace", (str() as old, str() as new, *_):
                    budget.foresee(owner.count(old) * len(new))
                case name, (int() as width, *_) if name in _PADDING:
                    budget.foresee(width)
        return budget.made(super().call(__context, __callee, *args, **kwargs))

    def call_filter(
        self, name: str, value: Any, args: Any = None, kwargs: Any = None, context: Any = None,
        eval_ctx: Any = None,
    ) -> Any:  # fmt: skip
        """What `map` does to each item."""
        return _budget(context).made(super().call_filter(name, value, args, kwargs, context, eval_ctx))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Without the methods of texts whose outcome's size cannot be foreseen."""
        return super().is_safe_attribute(obj, attr, value) and not (
            isinstance(obj, str) and attr in _UNBOUNDED
        )

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format`, for modest widths."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _check_widths(specification or "" for _, _, specification, _ in _parse(value.__self__))
        return wrapped


def render(template: jinja2.Template, values: dict[str, Any]) -> str:
    """The template's text. Raises whatever the template does, and `Exceeded`."""
    context = template.new_context(values)
    return _budget(context).concat(template.root_render_func(context))


def _budget(context: Context) -> Budget:
    budget: Budget = context.budget  # type: ignore[attr-defined]
    return budget


def _check_widths(specifications: Iterable[str]) -> None:
    if any(map(_WIDE.search, specifications)):
        raise Exceeded("it formats with a width that is large or not known")


def _foreseen(filter: Callable[..., Any]) -> Callable[..., Any]:
    """A filter of a text or a list that makes at most its size times its largest argument."""

    @jinja2.pass_context
    def checked(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        value = value if isinstance(value, str) else list(value)
        options = [*args, *kwargs.values()]
        widths = [len(one) if isinstance(one, str) else int(one or 0) for one in options]
        _budget(context).foresee((1 + len(value)) * max(widths, default=1))
        return filter(value, *args, **kwargs)

    return checked


def _format(pattern: Any, *args: Any, **kwargs: Any) -> str:
    _check_widths(_SPECIFICATION.findall(str(pattern)))
    return filters.do_format(pattern, *args, **kwargs)


@jinja2.pass_context
def _join(context: Context, values: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    if attribute is not None:
        values = filters.sync_do_map(context, values, attribute=attribute)
    return _budget(context).join(values, str(d))


@jinja2.pass_context
def _replace(context: Context, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    text = str(value)
    _budget(context).foresee(text.count(str(old)) * len(str(new)))
    return text.replace(str(old), str(new), -1 if count is None else count)


@jinja2.pass_context
def _string(context: Context, value: Any) -> str:
    return _budget(context).text(value)
