"""What is said of adapters that do not fit, and of those that name nothing to fit."""

import pytest

from potluck.model import ModelError
from potluck.model.loading import base_of, first_line


@pytest.mark.parametrize("config", ["{}", '{"base_model_name_or_path": null}',
                                    '{"base_model_name_or_path": ""}'])  # fmt: skip
def test_an_adapter_without_a_base_says_so(tmp_path, config):
    (tmp_path / "adapter_config.json").write_text(config)
    with pytest.raises(ModelError, match="names no base; write"):
        base_of(str(tmp_path))


@pytest.mark.parametrize("message, line", [
    ("Error(s) in loading state_dict for X:\n\tsize mismatch for y: [6, 2] and [5, 2].\n\tmore",
     "Error(s) in loading state_dict for X: size mismatch for y: [6, 2] and [5, 2]."),
    ("\n one line\nmore", "one line"),
    ("ends in a colon:", "ends in a colon:"),
    ("", "OSError"),
])  # fmt: skip
def test_a_line_that_ends_in_a_colon_has_the_next_one(message, line):
    assert first_line(OSError(message)) == line
