"""Mutation operators that cosmic-ray lacks, and the choice of its own that a run applies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import parso
from cosmic_ray.operators import (
    binary_operator_replacement,
    boolean_replacer,
    break_continue,
    comparison_operator_replacement,
    number_replacer,
    remove_decorator,
    unary_operator_replacement,
    zero_iteration_for_loop,
)
from cosmic_ray.operators.operator import Example, Operator

Position = tuple[tuple[int, int], tuple[int, int]]

# One or two replacements of each operator, those that a slip of the hand would make. All 132 pairs of cosmic-ray
# would fill the sample with `-` -> `<<`, which any test that runs the line kills with a TypeError.
BINARY = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Div", "Mod_Mul", "Pow_Mul", "BitOr_BitAnd")
BINARY += ("BitAnd_BitOr", "BitXor_BitAnd", "LShift_RShift", "RShift_LShift")
COMPARISON = ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "Lt_GtE", "LtE_Lt", "LtE_Gt", "Gt_GtE", "Gt_LtE", "GtE_Gt")
COMPARISON += ("GtE_Lt", "Is_IsNot", "IsNot_Is")
UNARY = ("Delete_USub", "Delete_Not", "Delete_Invert")


class ReplaceMembership(Operator):
    """Turns ``in`` into ``not in``, and the other way round."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        for place in self._places(node):
            yield node.children[place].start_pos, node.children[place].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        place = list(self._places(node))[index]
        was = node.children[place].get_code().strip()
        node.children[place] = parso.parse(" not in" if was == "in" else " in")
        return node

    @staticmethod
    def _places(node: Any) -> Iterator[int]:
        if node.type == "comparison":
            for place in range(1, len(node.children), 2):
                if " ".join(node.children[place].get_code().split()) in ("in", "not in"):
                    yield place

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("a in b", "a not in b"), Example("a not in b", "a in b"))


class ReplaceException(Operator):
    """Has an ``except`` clause miss one of its exceptions: cosmic-ray's own fails on ``except json.Error``."""

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        for parent, place in self._names(node):
            yield parent.children[place].start_pos, parent.children[place].end_pos

    def mutate(self, node: Any, index: int) -> Any:
        parent, place = list(self._names(node))[index]
        prefix = parent.children[place].get_first_leaf().prefix
        parent.children[place] = parso.parse(f"{prefix}GeneratorExit")
        return node

    @staticmethod
    def _names(node: Any) -> Iterator[tuple[Any, int]]:
        """The exceptions of a clause, each as its parent and its place there."""
        if node.type != "except_clause":
            return
        caught = node.children[1]
        inner = caught.children[1] if caught.type == "atom" and len(caught.children) == 3 else None
        if inner is not None and inner.type == "testlist_comp":
            for place in range(0, len(inner.children), 2):
                yield inner, place
        else:
            yield node, 1

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (
            Example("try: f()\nexcept OSError: pass", "try: f()\nexcept GeneratorExit: pass"),
            Example("try: f()\nexcept (A, B): pass", "try: f()\nexcept (GeneratorExit, B): pass"),
        )


class RemoveStatement(Operator):
    """Replaces a statement that is there for its effect with ``pass``.

    A call, an augmented assignment, an assignment to an attribute or an item, a ``del`` or a ``yield``, inside a
    function. The assignment of a plain name stays: without it the next line raises NameError.
    """

    def mutation_positions(self, node: Any) -> Iterator[Position]:
        if self._is_effect(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        return parso.python.tree.Keyword("pass", node.start_pos, prefix=node.get_first_leaf().prefix)

    @staticmethod
    def _is_effect(node: Any) -> bool:
        if node.parent is None or node.parent.type != "simple_stmt":
            return False
        if parso.tree.search_ancestor(node, "funcdef") is None:
            return False
        if node.type in ("atom_expr", "power"):  # a call or `await call`
            return bool(node.children[-1].get_code().endswith(")"))
        if node.type == "expr_stmt":
            target, operator = node.children[0], node.children[1]
            augmented = operator.type == "operator" and operator.value not in ("=", ":")
            return bool(augmented or (target.type == "atom_expr" and operator.type == "operator"))
        return node.type in ("del_stmt", "yield_expr")

    @classmethod
    def examples(cls) -> Iterable[Example]:
        return (Example("def f():\n    g()\n", "def f():\n    pass\n"),)


def operators() -> list[tuple[str, Operator]]:
    """Every operator that a run applies, by name."""
    classes: list[type[Operator]] = [
        boolean_replacer.ReplaceTrueWithFalse,
        boolean_replacer.ReplaceFalseWithTrue,
        boolean_replacer.ReplaceAndWithOr,
        boolean_replacer.ReplaceOrWithAnd,
        boolean_replacer.AddNot,
        break_continue.ReplaceBreakWithContinue,
        break_continue.ReplaceContinueWithBreak,
        ReplaceException,
        number_replacer.NumberReplacer,
        remove_decorator.RemoveDecorator,
        zero_iteration_for_loop.ZeroIterationForLoop,
        ReplaceMembership,
        RemoveStatement,
    ]
    for module, prefix, names in (
        (binary_operator_replacement, "ReplaceBinaryOperator_", BINARY),
        (comparison_operator_replacement, "ReplaceComparisonOperator_", COMPARISON),
        (unary_operator_replacement, "ReplaceUnaryOperator_", UNARY),
    ):
        classes.extend(getattr(module, prefix + name) for name in names)
    return [(operator.__name__, operator()) for operator in classes]
