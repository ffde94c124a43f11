"""Templates of the files beside a package's module: metadata, README and tests, and their parts that differ by kind."""

PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$distribution"
version = "0.1.0"
description = "$noun $module for specdec"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["specdec-core>=$version,<$next_version"$runtime]

[project.optional-dependencies]
testing = ["specdec-testing"]

[project.entry-points."$group"]
$module = "$module"

[tool.setuptools]
py-modules = ["$module"]
"""

README = """\
# $distribution

The $noun `$module` for [specdec](https://github.com/specdec/specdec).

```console
$$ pip install -e ".[testing]"
$$ specdec check $module
$$ pytest tests
```

$use
"""

USE_OF_PROPOSERS = """\
```python
from specdec import LLM

llm = LLM(model="zoo", speculative_config={"method": "$module", "num_speculative_tokens": 4})
```"""

USE_OF_SAMPLERS = """\
It verifies drafts where `speculative_config` says `"rejection_sample_method": "$module"`."""

USE_OF_SCORERS = """\
`specdec check $module --model zoo` checks it on another target."""

USE_OF_BACKENDS = """\
It is asked whenever a model is loaded, before the others; `SPECDEC_BACKENDS=$module` asks it alone."""

PROPOSER_TEST = """\
from specdec_testing import ProposerConformance


class Test$cls(ProposerConformance):
    method = "$module"
    config = {"num_speculative_tokens": 4}
"""

SAMPLER_TEST = """\
from specdec_testing import SamplerConformance


class Test$cls(SamplerConformance):
    sampler = "$module"
"""

SCORER_TEST = """\
from specdec_testing import ScorerConformance


class Test$cls(ScorerConformance):
    scorer = "$module"
    model = "tiny"
"""

BACKEND_TEST = """\
from specdec_testing import BackendConformance


class Test$cls(BackendConformance):
    backend = "$module"
"""
