"""The order of the untagged components: each as soon as those that it depends on are ready."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from graphlib import TopologicalSorter

from modelplane_dagster.components.types import JoinedComponent
from resources.steps.result import StepResult, upstream

PARALLEL = 4


def in_order(
    cluster: str, components: Iterable[JoinedComponent], ensure: Callable[[JoinedComponent], StepResult]
) -> dict[str, StepResult]:
    """What `ensure` says of each component, by key, in the order given. Four run at a time, none before its dependences among
    them; one whose dependence isn't ready is left alone and says which. What `ensure` raises is raised once those that run
    have ended, and no other is begun."""
    base = {j.key: j for j in components}
    needs = {key: [d for d in j.component.depends_on if d in base] for key, j in base.items()}
    order = TopologicalSorter(needs)
    order.prepare()
    done: dict[str, StepResult] = {}
    running: dict[Future[StepResult], str] = {}
    with ThreadPoolExecutor(max_workers=PARALLEL, thread_name_prefix=f"base-{cluster}") as pool:
        while order.is_active():
            for key in order.get_ready():
                blocked = next((d for d in needs[key] if done[d].state != "ready"), None)
                if blocked is not None:
                    done[key] = upstream(f"component/{cluster}/{key}", blocked)
                    order.done(key)
                else:
                    running[pool.submit(ensure, base[key])] = key
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                key = running.pop(future)
                done[key] = _result(future, pool)
                order.done(key)
    return {key: done[key] for key in base}


def _result(future: Future[StepResult], pool: ThreadPoolExecutor) -> StepResult:
    try:
        return future.result()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
