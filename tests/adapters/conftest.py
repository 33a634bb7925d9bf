import numpy as np
import pytest
from prefix_cases import random_arpa


@pytest.fixture
def arpa(tmp_path):
    path = tmp_path / "lm.arpa"
    path.write_text(random_arpa(np.random.default_rng(0), 3), "utf-8")
    return str(path)
