"""ModernBERT's names: of each weight, and of each setting, on disk and here. In lesson 16.

The names on disk are those of transformers' `ModernBertForMaskedLM`, which are ModernBERT's own
(Warner et al. 2024).
"""

from mlm_lib.named_weights import refuse_other

WORD, PROJECTION = "model.embeddings.tok_embeddings.weight", "decoder.weight"
BIAS = DECODER_BIAS = "decoder.bias"
NOT_NEEDED = ()
ENCODER, LAYER = "model.", r"^model\.layers\.\d+\."  # how names of the encoder begin

# Our names of settings, and theirs.
SETTING = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "window": "local_attention",
    "max_length": "max_position_embeddings",
    "embedding_dropout": "embedding_dropout",
    "attention_dropout": "attention_dropout",
    "mlp_dropout": "mlp_dropout",
    "layer_norm_eps": "norm_eps",
    "pad_token_id": "pad_token_id",
    "initializer_range": "initializer_range",
    "initializer_cutoff": "initializer_cutoff_factor",
}
# What ModernBERT has, or has not, in each of its published sizes.
PLAIN = {
    **{"hidden_activation": "gelu", "classifier_activation": "gelu", "decoder_bias": True},
    **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False),
}
KINDS = {"global_theta": "full_attention", "local_theta": "sliding_attention"}
EVERY = "global_attn_every_n_layers"  # from before there were layer_types
# A tokenizer knows these as well; the defaults are those of ModernBERT's own, which others lack.
TOKENS = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
# All that is read of a configuration, by its names of today and of before transformers 5.
NEEDED = (
    *(*SETTING.values(), *PLAIN, *TOKENS, "tie_word_embeddings", "layer_types", "rope_parameters"),
    *(EVERY, "global_rope_theta", "local_rope_theta"),
)


def our_settings(theirs):
    """The arguments of a `ModernConfig`, from a `ModernBertConfig`.

    Raises:
        ValueError: biases where ModernBERT has none, another activation, positions scaled in other
            ways, or layers whose kinds do not repeat.
    """
    refuse_other(theirs, PLAIN)
    settings = {ours: getattr(theirs, name) for ours, name in SETTING.items()}
    for ours, kind in KINDS.items():
        rope = theirs.rope_parameters[kind]
        if rope.get("rope_type", "default") != "default":
            raise ValueError(
                f"the checkpoint's {kind} has rope_type={rope['rope_type']!r}; "
                "here it must be 'default'"
            )
        settings[ours] = rope["rope_theta"]
    types = list(theirs.layer_types)
    said = getattr(theirs, EVERY, None)
    for every in (said, *range(1, len(types) + 1)):
        fits = isinstance(every, int) and every > 0
        if fits and types == layer_types(theirs.num_hidden_layers, every):
            return settings | {"global_every": every}
    raise ValueError(
        f"the checkpoint's layer_types={types} do not repeat; full_attention is needed in layer 0 "
        "and at equal steps after it, and sliding_attention elsewhere"
    )


def their_settings(config):
    """The arguments of a `ModernBertConfig`, from a `ModernConfig`."""
    settings = {name: getattr(config, ours) for ours, name in SETTING.items()}
    settings["layer_types"] = layer_types(config.num_layers, config.global_every)
    settings["rope_parameters"] = {
        kind: {"rope_type": "default", "rope_theta": getattr(config, ours)}
        for ours, kind in KINDS.items()
    }
    return settings | dict.fromkeys(TOKENS) | {EVERY: config.global_every}


def layer_types(count, every):
    """The kinds of so many layers, each of which is global at 0 and every so-manieth after it.

    >>> layer_types(4, 3)
    ['full_attention', 'sliding_attention', 'sliding_attention', 'full_attention']
    """
    return [KINDS["local_theta" if i % every else "global_theta"] for i in range(count)]


def parameters(config, tied):
    """(our name, their names, the shape of each of theirs) of every parameter."""
    V, H, I = config.vocab_size, config.hidden_size, config.intermediate_size  # noqa: E741
    yield "embedder.embeddings.word.weight", [WORD], (V, H)
    yield "embedder.embeddings.norm.weight", ["model.embeddings.norm.weight"], (H,)
    shapes = {
        "attention_norm": ("attn_norm", (H,)),
        "attention.query_key_value": ("attn.Wqkv", (3 * H, H)),
        "attention.output": ("attn.Wo", (H, H)),
        "feed_forward_norm": ("mlp_norm", (H,)),
        "expand": ("mlp.Wi", (2 * I, H)),
        "contract": ("mlp.Wo", (H, I)),
    }
    for i in range(config.num_layers):
        for ours, (theirs, shape) in shapes.items():
            if i or ours != "attention_norm":  # the first layer has none
                name = f"embedder.blocks.{i}.{ours}.weight"
                yield name, [f"model.layers.{i}.{theirs}.weight"], shape
    yield "embedder.norm.weight", ["model.final_norm.weight"], (H,)
    yield "head.dense.weight", ["head.dense.weight"], (H, H)
    yield "head.norm.weight", ["head.norm.weight"], (H,)
    yield "head.bias", [BIAS], (V,)
    if not tied:
        yield "head.projection", [PROJECTION], (V, H)


def canonical(weights):
    """The names of a whole model, with the prefix that a bare encoder leaves out."""
    bare = ("embeddings.", "layers.", "final_norm.")
    return {f"model.{n}" if n.startswith(bare) else n: weights[n] for n in weights}
