"""Conversion between transformers' models and ours: `from_hf` and `to_hf`.

Both functions copy the weights. The two models therefore give the same logits, and a change of one
does not change the other. A family of models, such as BERT, is one entry of the table `FAMILIES`.
The entry holds everything in which families differ: the classes, the names of the weights, and the
names of the settings. To support another family, add an entry. Several families may share our
classes, if their models have different modules: `to_hf` then finds the family by the modules.
Built in the lesson on the masked language model.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    BertForMaskedLM,
    ModernBertForMaskedLM,
    PreTrainedModel,
)
from transformers.activations import ACT2FN

from mlm_lib.checks import choice
from mlm_lib.encoder import EncoderConfig
from mlm_lib.heads import MaskedLMHead
from mlm_lib.masked_lm import MaskedLanguageModel
from mlm_lib.modern import ModernConfig


@dataclass(frozen=True)
class Family:
    """What `from_hf`, `to_hf` and `load_checkpoint` have to know about one family of models.

    "Our" names are the names in this package, and "their" names are the names in transformers.

    Args:
        model_class: transformers' class of the model with its masked-LM head.
        config_class: our class of configurations, from which `MaskedLanguageModel.from_config`
            builds a model.
        weight_names: {our module: their module}, for each module of the encoder and of the head
            that has weights. A `*` stands for the number of a block. Where one of our matrices
            stacks several matrices of transformers, the value is a tuple of the names of these
            matrices, from top to bottom.
        projection: their linear layer from hidden states to scores of the vocabulary.
        config_names: {our setting: their setting}, for settings that both sides have. Their name is
            the one in a checkpoint's config.json, and not one of the aliases in `attribute_map` of
            transformers, because `load_checkpoint` reads the file itself (see `file_settings`). For
            a DistilBERT, for example, it is `dim` and not `hidden_size`. The names of activations
            are translated as well.
        our_settings: a function of their configuration that returns {our setting: value}, for
            settings that have to be computed and not only renamed. Its values replace those that
            `config_names` found. None: there are no such settings.
        their_settings: the same for the other direction, a function of our configuration that
            returns {their setting: value}. A setting that only our configuration has needs no
            entry: `to_hf` refuses a model if transformers would compute with another value of it.
        second_bias: a second name that the bias of the projection has in their state dictionary.
            If the two biases differ, transformers does not use the one with this name. None: there
            is no second name.
        unsupported: settings of theirs that our encoder does not have. A model is refused if one of
            these settings differs from the value that `to_hf` would write.
        other_settings: further settings that `load_checkpoint` passes on to transformers, because
            they decide which weights a model has. A setting of a config.json that is named nowhere
            in the entry is not read.
    """

    model_class: type[PreTrainedModel]
    config_class: type
    weight_names: dict[str, str | tuple[str, ...]]
    projection: str
    config_names: dict[str, str]
    our_settings: Callable[..., dict] | None = None
    their_settings: Callable[..., dict] | None = None
    second_bias: str | None = None
    unsupported: tuple[str, ...] = ()
    other_settings: tuple[str, ...] = ()

    @property
    def encoder_prefix(self):
        """The prefix of the names of the encoder's weights in transformers' model for masked
        language modelling.

        >>> FAMILIES["bert"].encoder_prefix
        'bert.'
        """
        return f"{self.model_class.base_model_prefix}."

    @property
    def word_embeddings(self):
        """The name of the word embeddings in a file that holds only transformers' encoder, without
        a head.

        >>> FAMILIES["bert"].word_embeddings
        'embeddings.word_embeddings.weight'
        """
        name = self.weight_names["embedder.embeddings.word"]
        return f"{name.removeprefix(self.encoder_prefix)}.weight"

    @property
    def file_settings(self):
        """The settings that `load_checkpoint` reads from a config.json.

        All others are ignored, because an unknown setting in a file could make transformers compute
        for very long, or load foreign code.
        """
        own = (*self.config_names.values(), *self.unsupported, *self.other_settings)
        return (*own, *DECODER_SETTINGS, *TOKEN_IDS, "tie_word_embeddings")

    def weight_pairs(self, num_layers, tied):
        """Yields the name of each of our weights, with the names of the weights of transformers
        that it contains.

        Args:
            num_layers: the number of blocks.
            tied: whether the projection is the matrix of the word embeddings.

        Yields:
            (our name, list of their names in the order of our rows). Some of these names may belong
            to weights that a model does not have: a linear layer of a ModernBERT, for example, has
            no bias.

        >>> pairs = dict(FAMILIES["bert"].weight_pairs(num_layers=1, tied=True))
        >>> pairs["embedder.blocks.0.expand.bias"]
        ['bert.encoder.layer.0.intermediate.dense.bias']
        """
        for ours, theirs in self.weight_names.items():
            theirs = (theirs,) if isinstance(theirs, str) else theirs
            for block in map(str, range(num_layers if "*" in ours else 1)):
                for kind in ("weight", "bias"):
                    names = [f"{name.replace('*', block)}.{kind}" for name in theirs]
                    yield f"{ours.replace('*', block)}.{kind}", names
        projection = "head.token_embedding.weight" if tied else "head.projection"
        yield projection, [f"{self.projection}.weight"]
        yield "head.bias", [f"{self.projection}.bias"]


# Settings that no encoder of ours has, in any family (see `Family.unsupported`), with the values
# that hold if a configuration does not mention them.
DECODER_SETTINGS = {
    "is_decoder": False,
    "add_cross_attention": False,
    "position_embedding_type": "absolute",
}
# Settings that repeat ids of the tokenizer. In transformers their defaults are the ids of
# ModernBERT's own tokenizer, which a smaller vocabulary does not have.
TOKEN_IDS = ("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
# {our setting: their setting}, where BERT and ModernBERT use the same name.
BERT_AND_MODERNBERT_NAMES = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
    "max_length": "max_position_embeddings",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}
OUR_ACTIVATIONS = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "swish": "silu"}
THEIR_ACTIVATIONS = {"gelu_tanh": "gelu_pytorch_tanh"}
GLOBAL, LOCAL = "full_attention", "sliding_attention"  # what ModernBERT's `layer_types` may hold


def _our_modernbert_settings(theirs):
    """How often a layer is global, and the θ of global and of local layers."""
    # Layer 0 is global in every ModernBERT of ours. So the second global layer shows the distance.
    later = [i for i, kind in enumerate(theirs.layer_types) if kind == GLOBAL and i > 0]
    # Without a second global layer, all distances from the number of layers on mean the same.
    said = getattr(theirs, "global_attn_every_n_layers", None) or 0
    return {
        "global_every": later[0] if later else max(said, len(theirs.layer_types)),
        "global_theta": theirs.rope_parameters[GLOBAL]["rope_theta"],
        "local_theta": theirs.rope_parameters[LOCAL]["rope_theta"],
    }


def _their_modernbert_settings(ours):
    """No ids of special tokens: our configuration does not know them."""
    return dict.fromkeys(TOKEN_IDS)


FAMILIES = {  # {`model_type` of a configuration of transformers: its family}
    "bert": Family(
        model_class=BertForMaskedLM,
        config_class=EncoderConfig,
        weight_names={
            "embedder.embeddings.word": "bert.embeddings.word_embeddings",
            "embedder.embeddings.position": "bert.embeddings.position_embeddings",
            "embedder.embeddings.token_type": "bert.embeddings.token_type_embeddings",
            "embedder.embeddings.norm": "bert.embeddings.LayerNorm",
            "embedder.blocks.*.attention.query_key_value": (
                "bert.encoder.layer.*.attention.self.query",
                "bert.encoder.layer.*.attention.self.key",
                "bert.encoder.layer.*.attention.self.value",
            ),
            "embedder.blocks.*.attention.output": "bert.encoder.layer.*.attention.output.dense",
            "embedder.blocks.*.attention_norm": "bert.encoder.layer.*.attention.output.LayerNorm",
            "embedder.blocks.*.expand": "bert.encoder.layer.*.intermediate.dense",
            "embedder.blocks.*.contract": "bert.encoder.layer.*.output.dense",
            "embedder.blocks.*.feed_forward_norm": "bert.encoder.layer.*.output.LayerNorm",
            "head.dense": "cls.predictions.transform.dense",
            "head.norm": "cls.predictions.transform.LayerNorm",
        },
        projection="cls.predictions.decoder",
        second_bias="cls.predictions.bias",
        config_names=BERT_AND_MODERNBERT_NAMES
        | {
            "type_vocab_size": "type_vocab_size",
            "dropout": "hidden_dropout_prob",
            "attention_dropout": "attention_probs_dropout_prob",
            "activation": "hidden_act",
            "layer_norm_eps": "layer_norm_eps",
        },
    ),
    "modernbert": Family(
        model_class=ModernBertForMaskedLM,
        config_class=ModernConfig,
        weight_names={
            "embedder.embeddings.word": "model.embeddings.tok_embeddings",
            "embedder.embeddings.norm": "model.embeddings.norm",
            # transformers stacks queries, keys and values in one matrix as well, in the same order.
            "embedder.blocks.*.attention.query_key_value": "model.layers.*.attn.Wqkv",
            "embedder.blocks.*.attention.output": "model.layers.*.attn.Wo",
            "embedder.blocks.*.attention_norm": "model.layers.*.attn_norm",
            "embedder.blocks.*.expand": "model.layers.*.mlp.Wi",
            "embedder.blocks.*.contract": "model.layers.*.mlp.Wo",
            "embedder.blocks.*.feed_forward_norm": "model.layers.*.mlp_norm",
            "embedder.norm": "model.final_norm",
            "head.dense": "head.dense",
            "head.norm": "head.norm",
        },
        projection="decoder",
        config_names=BERT_AND_MODERNBERT_NAMES
        | {
            "window": "local_attention",
            "embedding_dropout": "embedding_dropout",
            "attention_dropout": "attention_dropout",
            "mlp_dropout": "mlp_dropout",
            "layer_norm_eps": "norm_eps",
            "initializer_cutoff": "initializer_cutoff_factor",
            # These names are older than transformers 5, which still makes `layer_types` and
            # `rope_parameters` from them.
            "global_every": "global_attn_every_n_layers",
            "global_theta": "global_rope_theta",
            "local_theta": "local_rope_theta",
        },
        our_settings=_our_modernbert_settings,
        their_settings=_their_modernbert_settings,
        unsupported=(
            "layer_types",
            "rope_parameters",
            "hidden_activation",
            "classifier_activation",
        ),
        other_settings=(
            "rope_scaling",
            "attention_bias",
            "mlp_bias",
            "norm_bias",
            "classifier_bias",
            "decoder_bias",
        ),
    ),
}


# ------------------------------------------------------------------------------------ conversion


def from_hf(bert_for_masked_lm):
    """Our model with the weights of a model of transformers, copied.

    The new model has the dtype, the device and the mode (training or evaluation) of the given one.
    Its projection is tied to the word embeddings if the given model's is.

    Args:
        bert_for_masked_lm: a model of one of the `FAMILIES`, such as a `BertForMaskedLM`.

    Returns:
        A `MaskedLanguageModel`.

    Raises:
        ValueError: a model of another class, such as RoBERTa or a classifier; a configuration with
            a setting that our encoders do not have, such as the settings of a decoder, or relative
            positions; an activation that we do not have.
        RuntimeError: weights for which our model has no place, such as biases in a ModernBERT. The
            message names them.
    """
    theirs = bert_for_masked_lm
    family = FAMILIES.get(getattr(getattr(theirs, "config", None), "model_type", None))
    if family is None or theirs.get_output_embeddings() is None:
        classes = " or a ".join(family.model_class.__name__ for family in FAMILIES.values())
        raise ValueError(f"from_hf got a {type(theirs).__name__}; a {classes} is needed")
    tied = theirs.get_output_embeddings().weight is theirs.get_input_embeddings().weight
    config = _our_config(theirs.config, family)
    # 1) Find the weights of theirs that each weight of ours holds, and put them together.
    weights, renamed = theirs.state_dict(), {}
    for ours, names in family.weight_pairs(config.num_layers, tied):
        if names[0] in weights:
            renamed[ours] = torch.cat([weights.pop(name) for name in names])
    weights.pop(family.second_bias, None)
    # 2) Copy them. A weight that found no partner keeps its name, and is refused here.
    model = _without_weights(config, tied)
    model.to_empty(device=theirs.device).to(theirs.dtype)
    model.load_state_dict(renamed | weights)
    return model.train(theirs.training)


def to_hf(model):
    """A model of transformers with the weights of ours, copied.

    `to_hf(from_hf(m))` makes the same predictions as m, and has the same state dictionary. There is
    one exception. An untied BERT never uses its bias `cls.predictions.bias`. After both conversions
    this bias equals the bias that the model uses. Two things are lost because transformers' classes
    do not have them: the number `top_k` of candidates that our model names for a blank, and the
    dropout before the head.

    Args:
        model: a `MaskedLanguageModel` of one of the `FAMILIES`: with a `BertEncoder`, for example,
            and with the head that `MaskedLanguageModel.from_config` makes for this encoder. The
            head may be tied or not.

    Returns:
        A model of transformers, such as a `BertForMaskedLM`, in the dtype, on the device and in the
        mode of the given model.

    Raises:
        ValueError: any other module, such as a classifier or a compiled model; a model with another
            encoder, a head that does not belong to the encoder, or a contextualizer between the
            two; an activation, or a value of another setting, that transformers does not have.
    """
    family = _family_of(model)
    if family is None:
        needed = "a MaskedLanguageModel of a BertEncoder or a ModernEncoder and its own head"
        told = f"transformers has no class for this {type(model).__name__}; {needed} is needed"
        raise ValueError(f"{told}, neither compiled nor wrapped; save other models with torch.save")
    head, config = model.head, model.embedder.config
    # 1) A new model of theirs. Its random weights are drawn from a copy of the generator, so that
    #    later random numbers are the same as without this call.
    their_config = _their_config(config, family, _is_tied(model))
    there = _values(_our_config(their_config, family))
    for name, value in _values(config).items():
        if there[name] != value:
            told = f"{family.model_class.__name__} of transformers computes with {there[name]!r}"
            raise ValueError(f"{name}={value!r}, but {told}; it cannot hold this model")
    with torch.random.fork_rng(devices=[]):
        theirs = AutoModelForMaskedLM.from_config(their_config)
    theirs.to(device=head.bias.device, dtype=head.bias.dtype)
    # 2) Our weights, cut where one of ours holds several of theirs.
    weights, renamed = model.state_dict(), {}
    for ours, names in family.weight_pairs(config.num_layers, _is_tied(model)):
        if ours in weights:
            renamed.update(zip(names, weights[ours].chunk(len(names))))
    if family.second_bias is not None:
        renamed[family.second_bias] = head.bias
    theirs.load_state_dict(renamed)
    return theirs.train(model.training)


def _our_config(theirs, family):
    """Our configuration from theirs.

    Raises:
        ValueError: a setting of theirs that our encoders do not have.
    """
    settings = {ours: getattr(theirs, name, None) for ours, name in family.config_names.items()}
    if "activation" in settings:
        activation = settings["activation"]
        settings["activation"] = OUR_ACTIVATIONS.get(activation, activation)
    if family.our_settings is not None:
        settings |= family.our_settings(theirs)
    config = family.config_class(**settings)
    if getattr(config, "dropout", None) == config.attention_dropout:
        config.attention_dropout = None  # so that it follows when a user changes `dropout`
    ordinary = _their_config(config, family, tied=True)
    for name in (*DECODER_SETTINGS, *family.unsupported):
        default = DECODER_SETTINGS.get(name)
        said, needed = (getattr(one, name, default) for one in (theirs, ordinary))
        if said != needed:
            raise ValueError(f"{name}={said!r} in the checkpoint; here it must be {needed!r}")
    return config


def _their_config(ours, family, tied):
    """Their configuration from ours.

    Raises:
        ValueError: a value of a setting of ours that transformers does not have.
    """
    values = _values(ours)
    settings = {name: values[each] for each, name in family.config_names.items()}
    if "activation" in family.config_names:
        activation = THEIR_ACTIVATIONS.get(ours.activation, ours.activation)
        settings[family.config_names["activation"]] = choice("activation", activation, ACT2FN)
    if family.their_settings is not None:
        settings |= family.their_settings(ours)
    settings["tie_word_embeddings"] = tied
    return AutoConfig.for_model(family.model_class.config_class.model_type, **settings)


def _values(ours):
    """{setting: value} of a configuration of ours, with the dropout of attention as a number."""
    values = dict(vars(ours))
    if values["attention_dropout"] is None:  # "the same as `dropout`"
        values["attention_dropout"] = ours.dropout
    return values


def _family_of(model):
    """The family whose class in transformers computes what this model computes, or None."""
    if not isinstance(model, MaskedLanguageModel) or model.contextualizer is not None:
        return None
    for family in FAMILIES.values():
        # A class derived from a configuration of ours belongs to a family of its own, or to none.
        same_config = type(getattr(model.embedder, "config", None)) is family.config_class
        if same_config and _has_modules_of(family, model):
            return family if _has_the_usual_parts(model) else None
    return None


def _has_modules_of(family, model):
    """Whether a model has all modules of `family.weight_names`, and weights in no other module.

    The head's own weights, the projection and its bias, do not count: every family has them.
    """
    modules, with_weights = set(), set()
    for name, module in model.named_modules():
        pattern = re.sub(r"\.\d+\.", ".*.", name)  # a * for the number of a block
        modules.add(pattern)
        if pattern != "head" and any(True for _ in module.parameters(recurse=False)):
            with_weights.add(pattern)
    named = family.weight_names.keys()
    # A module without weights may be there, too: a ModernBERT's block 0 has no norm of attention.
    return with_weights <= named <= modules


def _has_the_usual_parts(model):
    """Whether encoder and head are as `MaskedLanguageModel.from_config` makes them, tied or not."""
    if not isinstance(model.head, MaskedLMHead):
        return False
    usual = _without_weights(model.embedder.config, _is_tied(model))
    same_encoder = isinstance(model.embedder, type(usual.embedder))
    # Two activations may have one name in the description and differ in their options.
    same_head = repr(model.head) == repr(usual.head)
    return same_encoder and same_head and model.head.activation is usual.head.activation


def _is_tied(model):
    """Whether the projection is the matrix of the model's own word embeddings."""
    return model.head.token_embedding is model.embedder.embeddings.word


def _without_weights(config, tied):
    """A model on the "meta" device, which takes no memory and draws no random numbers."""
    with torch.device("meta"):
        model = MaskedLanguageModel.from_config(config)
        if not tied:
            options = {"activation": model.head.activation, "layer_norm_eps": model.head.norm.eps}
            options["bias"] = model.head.dense.bias is not None
            model.head = MaskedLMHead(config.hidden_size, config.vocab_size, **options)
    return model
