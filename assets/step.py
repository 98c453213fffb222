"""Assets of one step, made as `@dg.asset` makes them, in half its time.

A fleet of a hundred clusters has 1,500 of them. Most of what Dagster's decorator does for one is to look at its function's
signature, some sixteen times, and to work out inputs, outputs and resources from it; here all of them are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import dagster as dg

from assets.common import REQUIRES

Step = Callable[[dg.AssetExecutionContext], dg.MaterializeResult]
_RESULT = "result"
_ABOVE, _MADE, _CHECKED = dg.In(dg.Nothing), dg.Out(dg.Nothing), dg.Out(dg.Any)


def step_asset(step: Step, spec: dg.AssetSpec, checks: Sequence[dg.AssetCheckSpec]) -> dg.AssetsDefinition:
    """The asset of `spec` that `step` materialises, with its checks. Each dependence orders the run and hands nothing over;
    the step reaches the outside by the fleet's session alone."""
    by_output = {check.get_python_identifier(): check for check in checks}
    # By number: keys that differ in a dash or a dot alone would share a name made of their parts.
    inputs = {f"above_{number}": dep.asset_key for number, dep in enumerate(spec.deps)}
    op = dg.OpDefinition(
        compute_fn=_computes(step),
        name=spec.key.to_python_identifier(),
        description=spec.description,
        ins=dict.fromkeys(inputs, _ABOVE),
        outs={_RESULT: _MADE, **dict.fromkeys(by_output, _CHECKED)},
        required_resource_keys=REQUIRES,
        code_version=spec.code_version,
    )
    return dg.AssetsDefinition(
        keys_by_input_name=inputs,
        keys_by_output_name={_RESULT: spec.key},
        node_def=op,
        specs=[spec],
        check_specs_by_output_name=by_output,
    )


def _computes(step: Step) -> Callable[..., Iterator[dg.MaterializeResult]]:
    # Dagster gives its own context to a parameter that says nothing of its type.
    def compute(context, _inputs) -> Iterator[dg.MaterializeResult]:  # type: ignore[no-untyped-def]  # noqa: ANN001 - as above
        yield step(context)

    return compute
