/* Made by tools/golden/gpt_oss.py with transformers 5.23.0 and PyTorch 2.15.0; see there. */
#define GOLDEN_PROMPT 21
#define GOLDEN_MADE 27
#define GOLDEN_SHOWN 8

struct golden_tensor {
    const char *name;
    int64_t shape[4]; /* 0: no such dimension */
};

struct golden_model {
    const char *name, *config;
    const struct golden_tensor *tensor;
    int32_t n;
    int32_t ids[GOLDEN_PROMPT + GOLDEN_MADE];
    double lse, logit[GOLDEN_SHOWN]; /* behind the prompt: their log-sum-exp, and logits 0, 16, ... */
};

static const struct golden_tensor bf16_tensor[] = {
    {"lm_head.weight", {128, 64}}, {"model.embed_tokens.weight", {128, 64}}, {"model.layers.0.input_layernorm.weight", {64}},
    {"model.layers.0.mlp.experts.down_proj", {6, 48, 64}}, {"model.layers.0.mlp.experts.down_proj_bias", {6, 64}},
    {"model.layers.0.mlp.experts.gate_up_proj", {6, 64, 96}}, {"model.layers.0.mlp.experts.gate_up_proj_bias", {6, 96}},
    {"model.layers.0.mlp.router.bias", {6}}, {"model.layers.0.mlp.router.weight", {6, 64}},
    {"model.layers.0.post_attention_layernorm.weight", {64}}, {"model.layers.0.self_attn.k_proj.bias", {128}},
    {"model.layers.0.self_attn.k_proj.weight", {128, 64}}, {"model.layers.0.self_attn.o_proj.bias", {64}},
    {"model.layers.0.self_attn.o_proj.weight", {64, 256}}, {"model.layers.0.self_attn.q_proj.bias", {256}},
    {"model.layers.0.self_attn.q_proj.weight", {256, 64}}, {"model.layers.0.self_attn.sinks", {4}},
    {"model.layers.0.self_attn.v_proj.bias", {128}}, {"model.layers.0.self_attn.v_proj.weight", {128, 64}},
    {"model.layers.1.input_layernorm.weight", {64}}, {"model.layers.1.mlp.experts.down_proj", {6, 48, 64}},
    {"model.layers.1.mlp.experts.down_proj_bias", {6, 64}}, {"model.layers.1.mlp.experts.gate_up_proj", {6, 64, 96}},
    {"model.layers.1.mlp.experts.gate_up_proj_bias", {6, 96}}, {"model.layers.1.mlp.router.bias", {6}},
    {"model.layers.1.mlp.router.weight", {6, 64}}, {"model.layers.1.post_attention_layernorm.weight", {64}},
    {"model.layers.1.self_attn.k_proj.bias", {128}}, {"model.layers.1.self_attn.k_proj.weight", {128, 64}},
    {"model.layers.1.self_attn.o_proj.bias", {64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 256}},
    {"model.layers.1.self_attn.q_proj.bias", {256}}, {"model.layers.1.self_attn.q_proj.weight", {256, 64}},
    {"model.layers.1.self_attn.sinks", {4}}, {"model.layers.1.self_attn.v_proj.bias", {128}},
    {"model.layers.1.self_attn.v_proj.weight", {128, 64}}, {"model.layers.2.input_layernorm.weight", {64}},
    {"model.layers.2.mlp.experts.down_proj", {6, 48, 64}}, {"model.layers.2.mlp.experts.down_proj_bias", {6, 64}},
    {"model.layers.2.mlp.experts.gate_up_proj", {6, 64, 96}}, {"model.layers.2.mlp.experts.gate_up_proj_bias", {6, 96}},
    {"model.layers.2.mlp.router.bias", {6}}, {"model.layers.2.mlp.router.weight", {6, 64}},
    {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.k_proj.bias", {128}},
    {"model.layers.2.self_attn.k_proj.weight", {128, 64}}, {"model.layers.2.self_attn.o_proj.bias", {64}},
    {"model.layers.2.self_attn.o_proj.weight", {64, 256}}, {"model.layers.2.self_attn.q_proj.bias", {256}},
    {"model.layers.2.self_attn.q_proj.weight", {256, 64}}, {"model.layers.2.self_attn.sinks", {4}},
    {"model.layers.2.self_attn.v_proj.bias", {128}}, {"model.layers.2.self_attn.v_proj.weight", {128, 64}},
    {"model.layers.3.input_layernorm.weight", {64}}, {"model.layers.3.mlp.experts.down_proj", {6, 48, 64}},
    {"model.layers.3.mlp.experts.down_proj_bias", {6, 64}}, {"model.layers.3.mlp.experts.gate_up_proj", {6, 64, 96}},
    {"model.layers.3.mlp.experts.gate_up_proj_bias", {6, 96}}, {"model.layers.3.mlp.router.bias", {6}},
    {"model.layers.3.mlp.router.weight", {6, 64}}, {"model.layers.3.post_attention_layernorm.weight", {64}},
    {"model.layers.3.self_attn.k_proj.bias", {128}}, {"model.layers.3.self_attn.k_proj.weight", {128, 64}},
    {"model.layers.3.self_attn.o_proj.bias", {64}}, {"model.layers.3.self_attn.o_proj.weight", {64, 256}},
    {"model.layers.3.self_attn.q_proj.bias", {256}}, {"model.layers.3.self_attn.q_proj.weight", {256, 64}},
    {"model.layers.3.self_attn.sinks", {4}}, {"model.layers.3.self_attn.v_proj.bias", {128}},
    {"model.layers.3.self_attn.v_proj.weight", {128, 64}}, {"model.norm.weight", {64}}};

static const struct golden_model bf16_model = {.name = "bf16", .tensor = bf16_tensor, .n = sizeof bf16_tensor / sizeof *bf16_tensor, .config =
     "{\"architectures\": [\"GptOssForCausalLM\"], \"attention_bias\": true, \"bos_token_id\": 1, \"dtype\": \"bfloat16\", \"eos_"
     "token_id\": 2, \"head_dim\": 64, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 48, \"layer_types\":"
     " [\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"], \"max_position_embeddings\": 25"
     "6, \"model_type\": \"gpt_oss\", \"num_attention_heads\": 4, \"num_experts_per_tok\": 3, \"num_hidden_layers\": 4, \"num_k"
     "ey_value_heads\": 2, \"num_local_experts\": 6, \"output_router_logits\": false, \"rms_norm_eps\": 1e-05, \"rope_parame"
     "ters\": {\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 8.0, \"original_max_position_embeddings\": 32, \"rope_thet"
     "a\": 150000.0, \"rope_type\": \"yarn\", \"truncate\": false}, \"router_aux_loss_coef\": 0.001, \"sliding_window\": 8, \"sw"
     "iglu_alpha\": 1.702, \"swiglu_limit\": 7.0, \"tie_word_embeddings\": false, \"vocab_size\": 128}",
    .ids = {
    1, 39, 79, 121, 37, 83, 3, 53, 105, 31, 87, 17, 77, 11, 75, 13, 81, 23, 95, 41, 117, 4, 75, 85, 121, 31, 32, 98, 68, 116, 32, 25, 31, 116, 62,
    109, 63, 35, 46, 101, 25, 115, 104, 80, 73, 4, 101, 102},
    .lse = 5.29635845, .logit = {
    -1.383312, -0.007547525, 0.3741584, 1.885091, -0.4075772, -0.6919583, 1.548599, -0.7915195}};

static const struct golden_tensor mxfp4_tensor[] = {
    {"lm_head.weight", {128, 64}}, {"model.embed_tokens.weight", {128, 64}}, {"model.layers.0.input_layernorm.weight", {64}},
    {"model.layers.0.mlp.experts.down_proj_blocks", {6, 64, 2, 16}}, {"model.layers.0.mlp.experts.down_proj_scales", {6, 64, 2}},
    {"model.layers.0.mlp.experts.down_proj_bias", {6, 64}}, {"model.layers.0.mlp.experts.gate_up_proj_blocks", {6, 128, 2, 16}},
    {"model.layers.0.mlp.experts.gate_up_proj_scales", {6, 128, 2}}, {"model.layers.0.mlp.experts.gate_up_proj_bias", {6, 128}},
    {"model.layers.0.mlp.router.bias", {6}}, {"model.layers.0.mlp.router.weight", {6, 64}},
    {"model.layers.0.post_attention_layernorm.weight", {64}}, {"model.layers.0.self_attn.k_proj.bias", {128}},
    {"model.layers.0.self_attn.k_proj.weight", {128, 64}}, {"model.layers.0.self_attn.o_proj.bias", {64}},
    {"model.layers.0.self_attn.o_proj.weight", {64, 256}}, {"model.layers.0.self_attn.q_proj.bias", {256}},
    {"model.layers.0.self_attn.q_proj.weight", {256, 64}}, {"model.layers.0.self_attn.sinks", {4}},
    {"model.layers.0.self_attn.v_proj.bias", {128}}, {"model.layers.0.self_attn.v_proj.weight", {128, 64}},
    {"model.layers.1.input_layernorm.weight", {64}}, {"model.layers.1.mlp.experts.down_proj_blocks", {6, 64, 2, 16}},
    {"model.layers.1.mlp.experts.down_proj_scales", {6, 64, 2}}, {"model.layers.1.mlp.experts.down_proj_bias", {6, 64}},
    {"model.layers.1.mlp.experts.gate_up_proj_blocks", {6, 128, 2, 16}}, {"model.layers.1.mlp.experts.gate_up_proj_scales", {6, 128, 2}},
    {"model.layers.1.mlp.experts.gate_up_proj_bias", {6, 128}}, {"model.layers.1.mlp.router.bias", {6}},
    {"model.layers.1.mlp.router.weight", {6, 64}}, {"model.layers.1.post_attention_layernorm.weight", {64}},
    {"model.layers.1.self_attn.k_proj.bias", {128}}, {"model.layers.1.self_attn.k_proj.weight", {128, 64}},
    {"model.layers.1.self_attn.o_proj.bias", {64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 256}},
    {"model.layers.1.self_attn.q_proj.bias", {256}}, {"model.layers.1.self_attn.q_proj.weight", {256, 64}},
    {"model.layers.1.self_attn.sinks", {4}}, {"model.layers.1.self_attn.v_proj.bias", {128}},
    {"model.layers.1.self_attn.v_proj.weight", {128, 64}}, {"model.layers.2.input_layernorm.weight", {64}},
    {"model.layers.2.mlp.experts.down_proj_blocks", {6, 64, 2, 16}}, {"model.layers.2.mlp.experts.down_proj_scales", {6, 64, 2}},
    {"model.layers.2.mlp.experts.down_proj_bias", {6, 64}}, {"model.layers.2.mlp.experts.gate_up_proj_blocks", {6, 128, 2, 16}},
    {"model.layers.2.mlp.experts.gate_up_proj_scales", {6, 128, 2}}, {"model.layers.2.mlp.experts.gate_up_proj_bias", {6, 128}},
    {"model.layers.2.mlp.router.bias", {6}}, {"model.layers.2.mlp.router.weight", {6, 64}},
    {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.k_proj.bias", {128}},
    {"model.layers.2.self_attn.k_proj.weight", {128, 64}}, {"model.layers.2.self_attn.o_proj.bias", {64}},
    {"model.layers.2.self_attn.o_proj.weight", {64, 256}}, {"model.layers.2.self_attn.q_proj.bias", {256}},
    {"model.layers.2.self_attn.q_proj.weight", {256, 64}}, {"model.layers.2.self_attn.sinks", {4}},
    {"model.layers.2.self_attn.v_proj.bias", {128}}, {"model.layers.2.self_attn.v_proj.weight", {128, 64}},
    {"model.layers.3.input_layernorm.weight", {64}}, {"model.layers.3.mlp.experts.down_proj_blocks", {6, 64, 2, 16}},
    {"model.layers.3.mlp.experts.down_proj_scales", {6, 64, 2}}, {"model.layers.3.mlp.experts.down_proj_bias", {6, 64}},
    {"model.layers.3.mlp.experts.gate_up_proj_blocks", {6, 128, 2, 16}}, {"model.layers.3.mlp.experts.gate_up_proj_scales", {6, 128, 2}},
    {"model.layers.3.mlp.experts.gate_up_proj_bias", {6, 128}}, {"model.layers.3.mlp.router.bias", {6}},
    {"model.layers.3.mlp.router.weight", {6, 64}}, {"model.layers.3.post_attention_layernorm.weight", {64}},
    {"model.layers.3.self_attn.k_proj.bias", {128}}, {"model.layers.3.self_attn.k_proj.weight", {128, 64}},
    {"model.layers.3.self_attn.o_proj.bias", {64}}, {"model.layers.3.self_attn.o_proj.weight", {64, 256}},
    {"model.layers.3.self_attn.q_proj.bias", {256}}, {"model.layers.3.self_attn.q_proj.weight", {256, 64}},
    {"model.layers.3.self_attn.sinks", {4}}, {"model.layers.3.self_attn.v_proj.bias", {128}},
    {"model.layers.3.self_attn.v_proj.weight", {128, 64}}, {"model.norm.weight", {64}}};

static const struct golden_model mxfp4_model = {.name = "mxfp4", .tensor = mxfp4_tensor, .n = sizeof mxfp4_tensor / sizeof *mxfp4_tensor, .config =
     "{\"architectures\": [\"GptOssForCausalLM\"], \"attention_bias\": true, \"bos_token_id\": 1, \"dtype\": \"bfloat16\", \"eos_"
     "token_id\": 2, \"head_dim\": 64, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 64, \"layer_types\":"
     " [\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"], \"max_position_embeddings\": 25"
     "6, \"model_type\": \"gpt_oss\", \"num_attention_heads\": 4, \"num_experts_per_tok\": 3, \"num_hidden_layers\": 4, \"num_k"
     "ey_value_heads\": 2, \"num_local_experts\": 6, \"output_router_logits\": false, \"rms_norm_eps\": 1e-05, \"rope_parame"
     "ters\": {\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 8.0, \"original_max_position_embeddings\": 32, \"rope_thet"
     "a\": 150000.0, \"rope_type\": \"yarn\", \"truncate\": false}, \"router_aux_loss_coef\": 0.001, \"sliding_window\": 8, \"sw"
     "iglu_alpha\": 1.702, \"swiglu_limit\": 7.0, \"tie_word_embeddings\": false, \"vocab_size\": 128, \"quantization_config"
     "\": {\"quant_method\": \"mxfp4\", \"modules_to_not_convert\": [\"model.layers.*.self_attn\", \"model.layers.*.mlp.router"
     "\", \"model.embed_tokens\", \"lm_head\"]}}",
    .ids = {
    1, 39, 79, 121, 37, 83, 3, 53, 105, 31, 87, 17, 77, 11, 75, 13, 81, 23, 95, 41, 117, 38, 111, 111, 84, 42, 106, 11, 21, 116, 50, 21, 22, 122,
    24, 106, 118, 81, 87, 89, 20, 45, 19, 76, 121, 45, 57, 108},
    .lse = 5.23149397, .logit = {
    0.9649667, 0.197713, 0.6911369, -1.371344, -1.617902, -0.5471417, 0.3683846, -0.01701545}};

