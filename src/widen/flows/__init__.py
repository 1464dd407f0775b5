"""Flows: what changes in one table is carried on to another, range of versions by range of versions.

Source: docs/guide/flow.md
"""

from __future__ import annotations

from widen.flows.flow_step import FlowBatch
from widen.flows.pipelines import PipelineRun, run
from widen.flows.run_flow import Flow, flow, flow_chain

__all__ = ["Flow", "FlowBatch", "PipelineRun", "flow", "flow_chain", "run"]
