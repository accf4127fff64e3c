"""Mixed integer programs, solved by HiGHS."""

from __future__ import annotations

from typing import Any

_MISSING = "planning needs the solver HiGHS: pip install highspy"
_INFINITY = float("inf")


class Program:
    """Minimises a sum of columns under rows that bound sums of columns."""

    def __init__(self) -> None:
        try:
            import highspy  # type: ignore[import-not-found,unused-ignore]
        except ImportError as error:
            raise ImportError(_MISSING) from error
        self._highspy = highspy
        self._costs: list[float] = []
        self._bounds: list[tuple[float, float]] = []
        self._whole: list[int] = []
        self._rows: list[tuple[float, float, list[int], list[float]]] = []

    def column(
        self, low: float = 0.0, high: float = _INFINITY, cost: float = 0.0, whole: bool = False
    ) -> int:
        self._costs.append(cost)
        self._bounds.append((low, high))
        if whole:
            self._whole.append(len(self._costs) - 1)
        return len(self._costs) - 1

    def row(
        self, terms: dict[int, float], low: float = -_INFINITY, high: float = _INFINITY
    ) -> None:
        self._rows.append((low, high, list(terms), list(terms.values())))

    def solve(self, gap: float, seconds: float) -> list[float] | None:
        """The columns, or None when no values satisfy all rows."""
        import numpy as np

        highs: Any = self._highspy
        model = highs.HighsLp()
        model.num_col_, model.num_row_ = len(self._costs), len(self._rows)
        model.col_cost_ = np.array(self._costs)
        model.col_lower_ = np.array([low for low, _ in self._bounds])
        model.col_upper_ = np.array([high for _, high in self._bounds])
        model.row_lower_ = np.array([row[0] for row in self._rows])
        model.row_upper_ = np.array([row[1] for row in self._rows])
        starts = np.cumsum([0, *(len(row[2]) for row in self._rows)])
        model.a_matrix_.format_ = highs.MatrixFormat.kRowwise
        model.a_matrix_.start_ = starts
        model.a_matrix_.index_ = np.array([i for row in self._rows for i in row[2]], dtype=np.int32)
        model.a_matrix_.value_ = np.array([v for row in self._rows for v in row[3]])
        kinds = [highs.HighsVarType.kContinuous] * len(self._costs)
        for column in self._whole:
            kinds[column] = highs.HighsVarType.kInteger
        model.integrality_ = kinds
        solver = highs.Highs()
        for option, value in {
            "output_flag": False,
            "mip_rel_gap": gap,
            "time_limit": seconds,
            "threads": 1,
            "mip_feasibility_tolerance": 1e-9,
        }.items():
            solver.setOptionValue(option, value)
        solver.passModel(model)
        solver.run()
        if solver.getInfo().primal_solution_status != 2:  # no feasible point
            return None
        return list(solver.getSolution().col_value)
