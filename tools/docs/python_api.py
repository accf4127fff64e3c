"""The Python reference as Markdown, from signatures and docstrings. Nothing is imported: no torch.

python tools/docs/python_api.py PYTHON_FOLDER
"""

import sys
from pathlib import Path

import griffe

# Where the classes of answers are: those named, or all. What `peakline` exports stands before.
ANSWERS = {"run": [], "_live": ["Live"], "_timing": ["Timing"], "simulate": [], "fit": []}
INTEGRATIONS = [
    "huggingface", "lightning", "accelerate", "notebook", "logs", "tensorboard", "wandb",
    "prometheus", "opentelemetry",
]  # fmt: skip
DROP_INS = [
    "mem_tracker", "fsdp2_mem_tracker", "memory_tracker", "mod_tracker", "runtime_estimator",
    "sac_estimator", "ilp_utils", "sac_ilp", "fake_collectives",
]  # fmt: skip


def load(folder: Path) -> griffe.Module:
    loaded = griffe.load("peakline", search_paths=[str(folder)], allow_inspection=False)
    assert isinstance(loaded, griffe.Module)
    return loaded


def public(scope: griffe.Module | griffe.Class) -> list[griffe.Object]:
    """What the scope itself defines for users, in the order of its lines."""
    own = [m for m in scope.members.values() if isinstance(m, griffe.Object) and not m.is_module]
    named = [m for m in own if not m.name.startswith("_") and not _is_annotation_only(m)]
    return sorted(named, key=lambda member: member.lineno or 0)


def _is_annotation_only(member: griffe.Object) -> bool:
    """Constants and type aliases of a module are for its own use."""
    return isinstance(member, griffe.Attribute) and not isinstance(member.parent, griffe.Class)


def signature(function: griffe.Function) -> str:
    """`name(parameters) -> result`, one parameter a line where it is long."""
    given = [p for p in function.parameters if p.name not in ("self", "cls")]
    words = []
    keyword_only = False
    for parameter in given:
        text = parameter.name + (f": {parameter.annotation}" if parameter.annotation else "")
        if parameter.kind is griffe.ParameterKind.var_positional:
            text, keyword_only = f"*{text}", True
        elif parameter.kind is griffe.ParameterKind.var_keyword:
            text = f"**{text}"
        elif parameter.kind is griffe.ParameterKind.keyword_only and not keyword_only:
            words.append("*")
            keyword_only = True
        if parameter.default is not None and "variadic" not in parameter.kind.value:
            text += f" = {parameter.default}"
        words.append(text)
    result = f" -> {function.returns}" if function.returns else ""
    line = f"{function.name}({', '.join(words)}){result}"
    if len(line) <= 90:
        return line
    inner = "".join(f"    {word},\n" for word in words)
    return f"{function.name}(\n{inner}){result}"


def docstring(member: griffe.Object) -> str:
    return member.docstring.value.strip() if member.docstring else ""


def class_lines(found: griffe.Class) -> list[str]:
    """The class as Python would write it: fields with their remarks, methods with their promise."""
    bases = f"({', '.join(str(base) for base in found.bases)})" if found.bases else ""
    lines = [f"class {found.name}{bases}:"]
    initializer = found.members.get("__init__")
    if isinstance(initializer, griffe.Function) and "dataclass" not in found.labels:
        lines += _indented(f"def {signature(initializer)}")
    for member in public(found):
        if isinstance(member, griffe.Function):
            lines += ["", *_indented(f"def {signature(member)}"), *_remark(member)]
        elif isinstance(member, griffe.Attribute):
            lines += _attribute(member)
    return lines if len(lines) > 1 else [*lines, "    ..."]


def _attribute(member: griffe.Attribute) -> list[str]:
    if "property" in member.labels:
        result = f": {member.annotation}" if member.annotation else ""
        return ["", f"    {member.name}{result}  # read-only", *_remark(member)]
    lines = [line.strip() for line in member.lines]  # with the remark behind it
    set_in_a_method = bool(lines) and lines[0].startswith("self.")
    return [] if set_in_a_method else [f"    {line}" for line in lines]


def _indented(text: str) -> list[str]:
    return [f"    {line}" for line in text.splitlines()]


def _remark(member: griffe.Object) -> list[str]:
    return [f"        # {line}".rstrip() for line in docstring(member).splitlines()]


def member_text(member: griffe.Object, module: str, level: str) -> str:
    parts = [f"{level} {member.name}", docstring(member)]
    if isinstance(member, griffe.Class):
        code = "\n".join(class_lines(member))
    else:
        assert isinstance(member, griffe.Function)
        code = f"def {signature(member)}"
    parts.append(f"```python\n# from {module} import {member.name}\n{code}\n```")
    return "\n\n".join(part for part in parts if part)


def exported(package: griffe.Module) -> list[griffe.Object]:
    """What `import peakline` gives, less the drop-ins, which have their own modules below."""
    names = [str(name) for name in package.exports or [] if not str(name).startswith("_")]
    found = [_meant(package[name], name) for name in names]
    own = [member for member in found if not _is_dropin(member.module.path)]
    return sorted(
        own, key=lambda member: isinstance(member, griffe.Class) and member.name[0].isupper()
    )


def _is_dropin(module: str) -> bool:
    return "._dropin." in module or module.rpartition(".")[2] in DROP_INS


def _meant(found: griffe.Object | griffe.Alias, name: str) -> griffe.Object:
    """`peakline.fit` is the function of the module of that name."""
    target = found.final_target if isinstance(found, griffe.Alias) else found
    meant = target.members[name] if isinstance(target, griffe.Module) else target
    assert isinstance(meant, griffe.Object)
    return meant


def module_text(module: griffe.Module, without: list[griffe.Object]) -> list[str]:
    left = [member for member in public(module) if member not in without]
    heading = [f"### {module.path}", docstring(module)] if left else []
    return heading + [member_text(member, module.path, "####") for member in left]


def page(folder: Path) -> str:
    package = load(folder)
    root = exported(package)
    parts = ["## What `import peakline` gives"]
    parts += [member_text(member, "peakline", "###") for member in root]
    parts.append("## What the answers are made of")
    for name, wanted in ANSWERS.items():
        classes = [m for m in public(package[name]) if isinstance(m, griffe.Class)]
        left = [m for m in classes if m not in root and (not wanted or m.name in wanted)]
        parts += [member_text(member, package[name].path, "###") for member in left]
    parts.append("## Integrations")
    for name in INTEGRATIONS:
        parts += module_text(package["integrations"][name], [])
    parts.append("## Drop-ins for torch.distributed._tools")
    for name in DROP_INS:
        parts += module_text(package[name], [])
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    print(page(Path(sys.argv[1])))
