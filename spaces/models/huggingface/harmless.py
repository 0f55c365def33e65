"""Configuration fields that change neither time nor memory of a training step beyond what forerun models.

A field outside this list that no family reads, and that holds a number, true, a list or a mapping, is refused: it may
be the one that changes cost. Field names are those of transformers 4.30 to 5.0 and of the model repositories.
"""

HARMLESS = frozenset(
    """
    architectures auto_map dtype model_type name_or_path quantization_config torch_dtype transformers_version
    compression_config transformers.js_config

    bos_token_id decoder_start_token_id eos_token_id eod_token_id mask_token_id pad_token_id sep_token_id unk_token_id
    image_token_id image_token_index video_token_id vision_start_token_id vision_end_token_id vision_token_id

    attention_dropout attention_probs_dropout_prob attn_pdrop classifier_dropout classifier_dropout_prob embd_pdrop
    embedding_dropout ffn_dropout ffn_dropout_rate hidden_dropout hidden_dropout_prob resid_pdrop residual_dropout
    summary_first_dropout

    activation activation_function hidden_act hidden_activation initializer_range layer_norm_eps layer_norm_epsilon
    norm_eps norm_epsilon rms_norm_eps swiglu_limit swiglu_alpha mlp_act

    initial_context_length max_sequence_length model_max_length n_ctx original_max_position_embeddings
    partial_rotary_factor rope_interleave rope_local_base_freq rope_parameters rope_scaling rope_theta rotary
    rotary_base rotary_dim rotary_emb_base rotary_pct alibi

    attention_multiplier attn_logit_softcapping embedding_multiplier final_logit_softcapping logit_scale
    logits_scaling query_pre_attn_scalar residual_multiplier scale_attn_by_inverse_layer_idx scale_attn_weights

    aux_loss_alpha n_group norm_topk_prob num_expert_group output_router_logits routed_scaling_factor
    router_aux_loss_coef router_jitter_noise router_z_loss_coef scoring_func seq_aux topk_group
    input_jitter_noise

    attention_softmax_in_fp32 cache_implementation chunk_size_feed_forward ep_size gradient_checkpointing is_decoder
    masked_softmax_fusion output_attentions output_hidden_states pretraining_tp reorder_and_upcast_attn return_dict
    skip_bias_add skip_bias_add_qkv slow_but_exact torchscript use_cache use_parallel_residual
    tie_encoder_decoder unsloth_fixed unsloth_version offset_alibi

    summary_activation summary_proj_to_labels summary_type summary_use_proj id2label label2id num_labels problem_type
    task_specific_params finetuning_task prefix

    bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
    exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty max_length min_length
    no_repeat_ngram_size num_beam_groups num_beams num_return_sequences remove_invalid_values repetition_penalty
    return_dict_in_generate suppress_tokens temperature tokenizer_class top_k top_p typical_p
    """.split()
)
