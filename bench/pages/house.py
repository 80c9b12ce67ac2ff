"""``python -m bench.pages.house``: how large the source is, and how its modules hang together, as one table.

The table is part of ARCHITECTURE.md, so that a change that makes the house harder to live in is seen. Everything is
counted from the source alone: nothing is imported, and no clock is read.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Final

_WINDOW: Final = 6
#: For each row, what it was when this was first counted, and what it is to be.
AIMS: Final = (
    ("39,350", "31,000 at most"),
    ("8.4 / 23 / 91", "as it is"),
    ("98 of 365", "45 at most"),
    ("5.9", "4 at most"),
    ("42", "16 at most"),
    ("7", "0"),
    ("13", "16 at most"),
    ("366 / 701", "400 / 600 at most"),
)
_BEGIN: Final = "<!-- python -m bench.pages.house --write -->\n"
_END: Final = "<!-- end -->\n"
_SILENT: Final = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


@dataclass
class Module:
    """One source file."""

    name: str
    path: Path
    text: str
    tree: ast.Module
    imports: set[str] = field(default_factory=set)
    """The modules of the same package that define what it imports."""

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


def read_modules(package: Path) -> dict[str, Module]:
    """All modules of a package, by their names, with their imports."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        modules[name] = Module(name, path, text, ast.parse(text))
    for module in modules.values():
        module.imports = {found for found in _imports(module, modules) if found != module.name}
    return modules


def _imports(module: Module, modules: dict[str, Module]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module in modules and not node.level:
            for alias in node.names:
                yield _definer(node.module, alias.name, modules)


def _definer(module: str, name: str, modules: dict[str, Module]) -> str:
    """The module that defines a name: itself a module, or where a package imports it from."""
    if f"{module}.{name}" in modules:
        return f"{module}.{name}"
    for node in modules[module].tree.body:
        if isinstance(node, ast.ImportFrom) and node.module in modules:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _definer(node.module, alias.name, modules)
    return module


def code_lines(module: Module) -> int:
    """Lines that hold code: no blank ones, no comments, no docstrings."""
    return len(_code_line_numbers(module))


def _code_line_numbers(module: Module) -> set[int]:
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def function_lengths(module: Module) -> list[int]:
    """How many lines each function takes."""
    found = (node for node in ast.walk(module.tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return [(node.end_lineno or node.lineno) - node.lineno + 1 for node in found]


def class_names(module: Module) -> list[str]:
    """The public classes that a module defines."""
    return [node.name for node in module.tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def duplicated_windows(modules: dict[str, Module]) -> int:
    """How many runs of six lines of code stand in more than one place.

    Imports and heads of functions do not count: a port and an engine that satisfies it have the same heads.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    for module in modules.values():
        lines = module.text.splitlines()
        code = [lines[number - 1].strip() for number in sorted(_code_line_numbers(module) - _heads(module))]
        code = [line for line in code if len(line) > 2 and not line.startswith(('"', "@"))]
        for start in range(len(code) - _WINDOW + 1):
            seen[tuple(code[start : start + _WINDOW])] += 1
    return sum(1 for count in seen.values() if count > 1)


def _heads(module: Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines.update(range(node.lineno, node.body[0].lineno))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _layer(module: Module) -> str:
    """The folder of a module that is a layer: the first below the package, and each of the edges."""
    parts = module.name.split(".")[1:]
    depth = 2 if parts[:1] == ["edges"] else 1
    return ".".join(parts[:depth]) if len(parts) > depth else ".".join(parts[: depth - 1])


def percentile(values: list[int], share: float) -> int:
    """The value that ``share`` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def measure(package: Path) -> list[tuple[str, str]]:
    """The rows of the table."""
    modules = read_modules(package)
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for found in module.imports:
            importers[found].add(module.name)
    rooms = [module for module in modules.values() if not module.is_package and module.path.stem != "__main__"]
    folders = Counter(module.path.parent for module in rooms)
    functions = [length for module in modules.values() for length in function_lengths(module)]
    sizes = [module.text.count("\n") for module in modules.values()]
    names = Counter((_layer(module), name) for module in modules.values() for name in class_names(module))
    single = sum(1 for module in rooms if len(importers[module.name]) == 1)
    return [
        ("code lines (no blanks, comments, docstrings)", f"{sum(map(code_lines, modules.values())):,}"),
        (
            "function length mean / p95 / max",
            f"{mean(functions):.1f} / {percentile(functions, 0.95)} / {max(functions)}",
        ),
        ("modules with exactly one importer", f"{single} of {len(modules)}"),
        ("own imports per module", f"{mean(len(module.imports) for module in rooms):.1f}"),
        ("most modules in one folder", f"{max(folders.values())}"),
        ("public class names used twice in a layer", f"{sum(1 for count in names.values() if count > 1)}"),
        ("duplicated six-line windows", f"{duplicated_windows(modules)}"),
        ("module lines p95 / max", f"{percentile(sizes, 0.95)} / {max(sizes)}"),
    ]


def render(rows: list[tuple[str, str]]) -> str:
    """The rows as a table, beside what was counted before this was watched, and what it is to be."""
    lines = ["| what is counted | before | here | to be |", "|---|---|---|---|"]
    lines += [
        f"| {what} | {before} | {value} | {wanted} |"
        for (what, value), (before, wanted) in zip(rows, AIMS, strict=True)
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table for the package that is named, or for the product; ``--write`` puts it into ARCHITECTURE.md."""
    named = [argument for argument in sys.argv[1:] if argument != "--write"]
    root = Path(__file__).parents[2]
    table = render(measure(Path(named[0]) if named else root / "src" / "holdfast"))
    if "--write" in sys.argv:
        page = root / "ARCHITECTURE.md"
        before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
        page.write_text(f"{before}{_BEGIN}{table}{_END}{rest.partition(_END)[2]}", encoding="utf-8")
    print(table, end="")


if __name__ == "__main__":
    main()
