"""Agents: multi-turn conversations through the proxy, tools in a sandbox, tasks and their verifier."""
