"""The rules that keep the house in order, checked on the source itself."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROLES = ("gateway", "tokenizer", "scheduler", "executor", "detokenizer", "client")
SHARED = tuple(
    f"stretto.roles.{name}"
    for name in (
        "messages",
        "config",
        "actor",
        "metrics",
        "sockets",
        "janitor",
        "trace",
        "alarm",
        "deadlines",
        "preflight",
        "origins",
    )
)


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def imported_modules(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return modules


@pytest.mark.parametrize("role", ROLES)
def test_a_role_imports_no_other_role(role: str) -> None:
    for path in sources(f"roles/{role}"):
        for module in imported_modules(path):
            if module.startswith("stretto.roles."):
                own = module.startswith(f"stretto.roles.{role}")
                assert own or module.startswith(SHARED), f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("stretto", ("torch", "numpy", "zmq", "asyncio")),
        ("stretto.supervisor", ("torch", "numpy", "numba", "transformers", "zmq", "gguf")),
        ("stretto.supervisor", ("stretto.bench", "stretto.kernels", "stretto.roles.client", "rich")),
        ("stretto.roles.client.llm", ("numpy", "httpx", "stretto.bench", "stretto.supervisor")),
        ("stretto.roles.scheduler.core", ("torch", "zmq", "asyncio", "transformers")),
        ("stretto.roles.scheduler.actor", ("torch", "zmq", "transformers")),
        ("stretto.roles.gateway.actor", ("torch", "transformers", "tokenizers", "numba")),
        ("stretto.roles.tokenizer.actor", ("torch", "transformers", "numba")),
        ("stretto.roles.detokenizer.actor", ("torch", "transformers", "numba")),
        ("stretto.roles.client", ("torch", "transformers", "numba")),
        ("stretto.kernels", ("torch", "numba", "triton")),
        ("stretto.shm.channel", ("torch", "numpy", "zmq")),
    ],
)
def test_importing_a_module_stays_light(module: str, forbidden: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {forbidden!r} if name in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_package_is_listed_for_installation() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = [ROOT / top for top in ("roles", "shm", "kernels", "bench")]
    found = {
        ".".join(("stretto", *init.parent.relative_to(ROOT).parts))
        for folder in folders
        for init in folder.rglob("__init__.py")
    }
    assert listed == found | {"stretto"}


def test_the_top_level_holds_what_the_design_names() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode != 0:
        pytest.skip("not a git checkout")
    tops = {line.split("/")[0] for line in tracked.stdout.splitlines()}
    assert tops <= {
        ".ci", ".gitignore", "ARCHITECTURE.md", "LICENSE", "Makefile", "README.md", "__init__.py", "bench",
        "kernels", "py.typed", "pyproject.toml", "roles", "shm", "supervisor.py", "tests",
    }  # fmt: skip


def test_nothing_is_pickled() -> None:
    for folder in ("roles", "shm", "kernels", "bench"):
        for path in sources(folder):
            assert not imported_modules(path) & {"pickle", "dill", "cloudpickle"}, path
