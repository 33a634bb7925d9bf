import json

import pytest
from tiny_sets import write_sets


@pytest.fixture
def on_tiny_sets(tmp_path):
    """Runs a tool on the tiny sets: its exit status, and what it wrote."""
    write_sets(tmp_path)

    def run(tool, flags, *more, **given):
        output = tmp_path / "figures.json"
        fixed = f"--data {tmp_path} --cache {tmp_path}/cache --output {output} {flags}"
        status = tool.main([*fixed.split(), *map(str, more)], **given)
        return status, json.loads(output.read_text())

    return run
