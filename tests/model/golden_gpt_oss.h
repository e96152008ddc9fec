/* Made by tools/golden/gpt_oss.py with transformers 5.23.0 and PyTorch 2.15.0; see there. */
#define GOLDEN_PROMPT 21
#define GOLDEN_MADE 27
#define GOLDEN_SHOWN 8

static const char golden_config[] =
     "{\"architectures\": [\"GptOssForCausalLM\"], \"attention_bias\": true, \"bos_token_id\": 1, \"dtype\": \"bfloat16\", \"eos_"
     "token_id\": 2, \"head_dim\": 64, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 48, \"layer_types\":"
     " [\"sliding_attention\", \"full_attention\", \"sliding_attention\", \"full_attention\"], \"max_position_embeddings\": 25"
     "6, \"model_type\": \"gpt_oss\", \"num_attention_heads\": 4, \"num_experts_per_tok\": 3, \"num_hidden_layers\": 4, \"num_k"
     "ey_value_heads\": 2, \"num_local_experts\": 6, \"output_router_logits\": false, \"rms_norm_eps\": 1e-05, \"rope_parame"
     "ters\": {\"beta_fast\": 32.0, \"beta_slow\": 1.0, \"factor\": 8.0, \"original_max_position_embeddings\": 32, \"rope_thet"
     "a\": 150000.0, \"rope_type\": \"yarn\", \"truncate\": false}, \"router_aux_loss_coef\": 0.001, \"sliding_window\": 8, \"sw"
     "iglu_alpha\": 1.702, \"swiglu_limit\": 7.0, \"tie_word_embeddings\": false, \"vocab_size\": 128}";

static const struct {
    const char *name;
    int64_t shape[3]; /* 0: no such dimension */
} golden_tensor[] = {
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

static const int32_t golden_ids[GOLDEN_PROMPT + GOLDEN_MADE] = {
    1, 39, 79, 121, 37, 83, 3, 53, 105, 31, 87, 17, 77, 11, 75, 13, 81, 23, 95, 41, 117, 4, 75, 85, 121, 31, 32, 98, 68, 116, 32, 25, 31, 116, 62,
    109, 63, 35, 46, 101, 25, 115, 104, 80, 73, 4, 101, 102};

/* Behind the prompt: their log-sum-exp, and logits 0, 16, ... */
static const double golden_lse = 5.29635845, golden_logit[GOLDEN_SHOWN] = {
    -1.383312, -0.007547525, 0.3741584, 1.885091, -0.4075772, -0.6919583, 1.548599, -0.7915195};
