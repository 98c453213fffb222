"""Two reconciles of one fleet at once: one waits or stops with the other's name, and both end well."""

from __future__ import annotations

import os
import socket
import time

import pytest

from modelplane_dagster.errors import ClusterBusyError
from tests.e2e.site import site
from tests.e2e.test_kills import fleet, stands

pytestmark = [pytest.mark.lab]


@pytest.mark.slow
def test_two_processes_end_well(tmp_path):
    with site(tmp_path) as made:
        fleet(made)
        both = [made.start("reconcile", str(made.folder), "--timeout", "150s") for _ in range(2)]
        try:
            ends = [(p.communicate(timeout=170), p.returncode) for p in both]
        finally:
            for process in both:
                process.kill()
        for (out, err), status in ends:
            assert "Traceback" not in out + err
            assert status == 0, (out, err)
        stands(made)


def test_the_second_writer_is_told_who_holds_the_cluster(tmp_path):
    with site(tmp_path) as made:
        fleet(made)
        with made.session() as first, made.session() as second:
            first.write(first.admit("civo-london")[0])
            before, start = made.changes(), time.monotonic()
            with pytest.raises(ClusterBusyError) as busy:
                second.write(second.admit("civo-london")[0])
            assert time.monotonic() - start < 5
            assert f"cluster civo-london: {socket.gethostname()}/{os.getpid()}/" in busy.value.message
            assert made.changes() == before
        with made.session() as second:
            second.write(second.admit("civo-london")[0])
