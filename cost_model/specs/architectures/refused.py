"""What is not supported, and why: a refusal names the architecture and the reason."""

from typing import Final

_STATE_SPACE: Final = "a state-space or recurrent model"
_HYBRID: Final = "a hybrid with state-space, linear-attention or convolution layers"
_VISION: Final = "a vision model"
_AUDIO: Final = "a speech or audio model"
_PAIR: Final = "a model that matches two encoders"
_DIFFUSION: Final = "a diffusion model"

KINDS: Final = {
    _STATE_SPACE: (
        "falcon_mamba mamba mamba2 recurrent_gemma rwkv rwkv5 rwkv6 rwkv7 xlstm retnet hyena"
    ),
    _HYBRID: (
        "bailing_hybrid bamba falcon_h1 jamba kimi_linear lfm2 lfm2_moe lfm2_vl lfm3 minimax "
        "minimax_text_01 nemotron_h olmo_hybrid plamo2 qwen3_5 qwen3_5_moe qwen3_5_moe_text "
        "qwen3_5_text qwen3_next qwen4_exp qwen4_exp_text ring_hybrid step3p5 zamba zamba2 zaya"
    ),
    _VISION: (
        "beit convnext convnextv2 deit depth_anything detr dinov2 dinov2_with_registers dinov3_vit "
        "dpt efficientnet hiera ijepa imagegpt mask2former maskformer mobilenet_v1 mobilenet_v2 "
        "mobilevit oneformer poolformer regnet resnet rt_detr sam sam2 segformer swin swinv2 "
        "timm_wrapper vit vit_mae vit_msn vitdet vitmatte vitpose videomae vivit vjepa2 yolos"
    ),
    _AUDIO: (
        "audio-spectrogram-transformer bark csm data2vec-audio dia encodec hubert mimi moonshine "
        "musicgen parakeet_ctc seamless_m4t seamless_m4t_v2 sew speech_to_text speecht5 unispeech "
        "vits wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm whisper"
    ),
    _PAIR: (
        "align altclip blip bridgetower chinese_clip clap clip clipseg flava groupvit metaclip_2 "
        "siglip siglip2 vision-text-dual-encoder xclip"
    ),
}

_REASONS: Final = {name: reason for reason, names in KINDS.items() for name in names.split()}


def reason(model_type: str, class_name: str) -> str | None:
    """Why a model type, or the class named, is not supported; None where nothing is known."""
    if model_type in _REASONS:
        return _REASONS[model_type]
    if any(word in class_name for word in ("Mamba", "Rwkv", "RWKV", "SSM", "Hyena")):
        return _STATE_SPACE
    if any(word in class_name for word in ("UNet", "Diffusion", "AutoencoderKL", "Transformer2D")):
        return _DIFFUSION
    return None
