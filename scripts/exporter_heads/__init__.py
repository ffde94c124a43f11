"""Tiny heads as their exporters write them, with the logits that these compute: what `tests/exporters.tar.xz` holds.

speculators 0.9.0, nvidia-modelopt 0.47.0, SpecForge at a6b6b023, z-lab's dflash at 44947fb and DeepSpec at afdfa7c, in a
folder outside the repository:

    export EXPORTERS=$HOME/exporters
    pip download --no-deps --dest $EXPORTERS/wheels speculators==0.9.0 nvidia-modelopt==0.47.0
    unzip -q "$EXPORTERS/wheels/speculators*" -d $EXPORTERS/speculators
    unzip -q "$EXPORTERS/wheels/nvidia_modelopt*" -d $EXPORTERS/modelopt
    pip install --no-deps --target $EXPORTERS/extra hs_connectors loguru nvidia-ml-py omegaconf antlr4-python3-runtime==4.9.3 \
        pulp pydantic-settings python-dotenv scipy
    git clone https://github.com/sgl-project/SpecForge $EXPORTERS/specforge
    git -C $EXPORTERS/specforge checkout a6b6b023
    git clone https://github.com/z-lab/dflash $EXPORTERS/zlab
    git -C $EXPORTERS/zlab checkout 44947fb
    git clone https://github.com/deepseek-ai/DeepSpec $EXPORTERS/deepspec
    git -C $EXPORTERS/deepspec checkout afdfa7c

Then, with the environment of `make install`:

    PYTHONPATH=scripts python -m exporter_heads [speculators] [modelopt] [specforge] [zlab] [deepspec]
"""
