"""Types of models that cannot be read, and the operator that is missing for each."""

from collections.abc import Mapping

_CONVOLUTIONS = "two-dimensional convolutions"
_WINDOWS = "attention inside windows of an image, merged from stage to stage"
_AUDIO = "convolutions over sound"
_OPERATORS = {
    f"{_CONVOLUTIONS} beside a text encoder": "align",
    _WINDOWS: "swin2sr maxvit",
    "cross attention to a fixed set of latents": "perceiver evolla",
    "attention by hashing": "reformer",
    "attention by sampling, in place of a softmax": "yoso",
    "attention approximated by landmarks": "nystromformer",
    "attention over sequences that are pooled between stages": "funnel",
    "a tokenizer of images by convolutions": "chameleon",
    "a canvas of tokens that are denoised together": "diffusion_gemma",
    "a network of another library (timm) that the file names and does not describe": "timm_wrapper",
    "several streams of tokens of sound, beside an encoder of words": "musicgen musicgen_melody",
    "Fourier transforms in place of attention": "fnet",
    "span-based dynamic convolution": "convbert",
    "grouped convolutions in place of products": "squeezebert",
    "bottlenecks around stacked feed-forwards": "mobilebert",
    "attention among words and entities": "luke",
    "attention with convolved queries and keys": "zaya",
    "attention with learned logits of distances": "inkling_text inkling_mm_model",
    "short convolutions whose taps every token makes, and attention to earlier blocks' outputs": """inkling2_text
        inkling2""",
    "byte patches between two decoders": "blt",
    "queries and gates made of a low-rank vector before and after its norm": "axk2",
    "attention merged with cross attention": "t5gemma2",
    "hash tables of n-grams": "qwen4_exp qwen4_exp_text",
    _AUDIO: """canary dia fun_asr_nano kyutai_speech_to_text moonshine
        moonshine_streaming speecht5 speech_to_text vibevoice speech-encoder-decoder wav2vec2
        hubert wavlm cohere_asr""",
}
MISSING: Mapping[str, str] = {kind: operator for operator, kinds in _OPERATORS.items() for kind in kinds.split()}
"""The missing operator by ``model_type``."""
