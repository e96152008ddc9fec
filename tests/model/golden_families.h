/* Made by tools/golden/families.py with transformers 5.23.0 and PyTorch 2.15.0; see there. */
#define GOLDEN_IDS 40
#define GOLDEN_SHOWN 11
#define GOLDEN_STEP 8
#define GOLDEN_TENSORS_MAX 128

static const struct golden_family {
    const char *name, *config;
    struct {
        const char *name;
        int64_t shape[2]; /* the second 0: a vector */
    } tensor[GOLDEN_TENSORS_MAX];
    struct {
        double lse, logit[GOLDEN_SHOWN]; /* logits 0, GOLDEN_STEP, ... */
    } row[2]; /* positions GOLDEN_IDS / 2 and GOLDEN_IDS - 1 */
} golden[] = {
    {"llama",
     "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_t"
     "oken_id\": 2, \"head_dim\": 16, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"max_position_e"
     "mbeddings\": 256, \"mlp_bias\": false, \"model_type\": \"llama\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \""
     "num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"defau"
     "lt\"}, \"tie_word_embeddings\": false, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.down_proj.weight", {64, 96}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {64, 64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.weight", {32, 64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 64}}, {"model.layers.1.mlp.up_proj.weight", {96, 64}},
      {"model.layers.1.mlp.down_proj.weight", {64, 96}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}},
      {"lm_head.weight", {96, 64}}},
     {{4.92770619, {-0.6856472, 0.6967557, 0.3395435, -0.3930513, -0.0580799, -0.2326991, 0.4927726, 0.6340555, -0.2637413, -1.562247, -1.119888}},
      {4.88349344, {0.2699428, -0.8761464, 0.5054839, -0.2095777, 0.4823951, -0.3326752, 0.7976406, 1.242253, -1.197503, -1.37673, -1.332066}}}},
    {"llama with biases, a tied head and heads of 32",
     "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": true, \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_to"
     "ken_id\": 2, \"head_dim\": 32, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"max_position_em"
     "beddings\": 256, \"mlp_bias\": true, \"model_type\": \"llama\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \"nu"
     "m_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default"
     "\"}, \"tie_word_embeddings\": true, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {128, 64}},
      {"model.layers.0.self_attn.q_proj.bias", {128}}, {"model.layers.0.self_attn.k_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.k_proj.bias", {64}}, {"model.layers.0.self_attn.v_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.v_proj.bias", {64}}, {"model.layers.0.self_attn.o_proj.weight", {64, 128}},
      {"model.layers.0.self_attn.o_proj.bias", {64}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.gate_proj.bias", {96}}, {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.up_proj.bias", {96}},
      {"model.layers.0.mlp.down_proj.weight", {64, 96}}, {"model.layers.0.mlp.down_proj.bias", {64}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {128, 64}}, {"model.layers.1.self_attn.q_proj.bias", {128}},
      {"model.layers.1.self_attn.k_proj.weight", {64, 64}}, {"model.layers.1.self_attn.k_proj.bias", {64}},
      {"model.layers.1.self_attn.v_proj.weight", {64, 64}}, {"model.layers.1.self_attn.v_proj.bias", {64}},
      {"model.layers.1.self_attn.o_proj.weight", {64, 128}}, {"model.layers.1.self_attn.o_proj.bias", {64}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 64}}, {"model.layers.1.mlp.gate_proj.bias", {96}},
      {"model.layers.1.mlp.up_proj.weight", {96, 64}}, {"model.layers.1.mlp.up_proj.bias", {96}}, {"model.layers.1.mlp.down_proj.weight", {64, 96}},
      {"model.layers.1.mlp.down_proj.bias", {64}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.q_proj.weight", {128, 64}},
      {"model.layers.2.self_attn.q_proj.bias", {128}}, {"model.layers.2.self_attn.k_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.k_proj.bias", {64}}, {"model.layers.2.self_attn.v_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.v_proj.bias", {64}}, {"model.layers.2.self_attn.o_proj.weight", {64, 128}},
      {"model.layers.2.self_attn.o_proj.bias", {64}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.gate_proj.bias", {96}}, {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.up_proj.bias", {96}},
      {"model.layers.2.mlp.down_proj.weight", {64, 96}}, {"model.layers.2.mlp.down_proj.bias", {64}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}}},
     {{5.31020318, {0.8312013, 0.5258738, -0.290285, 0.3614958, 1.348496, 0.7893083, 1.579729, -0.758579, -0.08233384, -1.262601, 0.09886656}},
      {5.3889469, {-0.151942, 0.5852255, -0.3602536, 0.6418307, 1.529238, -0.1868048, 1.529651, -1.253787, -0.3949456, -1.196916, -0.2465497}}}},
    {"llama with Llama 3's scaling",
     "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_t"
     "oken_id\": 2, \"head_dim\": 16, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"max_position_e"
     "mbeddings\": 256, \"mlp_bias\": false, \"model_type\": \"llama\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \""
     "num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"factor\": 8.0, \"high_freq_factor\": 4.0, \"l"
     "ow_freq_factor\": 1.0, \"original_max_position_embeddings\": 32, \"rope_theta\": 500000.0, \"rope_type\": \"llama3\"}, "
     "\"tie_word_embeddings\": false, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.down_proj.weight", {64, 96}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {64, 64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.weight", {32, 64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 64}}, {"model.layers.1.mlp.up_proj.weight", {96, 64}},
      {"model.layers.1.mlp.down_proj.weight", {64, 96}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}},
      {"lm_head.weight", {96, 64}}},
     {{4.87233256, {1.586592, -0.3559011, 0.5955282, 0.2050755, 0.4430989, -0.6752626, -1.313764, 1.091809, -0.6776396, 0.3420403, -0.07397143}},
      {4.96897176, {-0.1540419, 0.1635178, 1.314553, 1.096508, 1.213529, -0.393801, -1.106207, -0.6943181, -1.687938, 0.8996083, 1.965153}}}},
    {"llama with linear scaling",
     "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_t"
     "oken_id\": 2, \"head_dim\": 16, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"max_position_e"
     "mbeddings\": 256, \"mlp_bias\": false, \"model_type\": \"llama\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \""
     "num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"factor\": 4.0, \"rope_theta\": 10000.0, \"rop"
     "e_type\": \"linear\"}, \"tie_word_embeddings\": false, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.down_proj.weight", {64, 96}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {64, 64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.weight", {32, 64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 64}}, {"model.layers.1.mlp.up_proj.weight", {96, 64}},
      {"model.layers.1.mlp.down_proj.weight", {64, 96}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}},
      {"lm_head.weight", {96, 64}}},
     {{5.0982109, {0.6788614, -0.5245593, 0.03170941, -0.1158983, -0.6031857, -0.1968387, -0.8147012, -1.5187, -0.2175336, 2.282264, -1.35965}},
      {4.88652789, {0.434688, 0.009109844, -0.5895308, -0.8735688, -0.5140069, -0.5620581, -0.598177, -1.051064, 0.3289871, 1.588053, -0.1715231}}}},
    {"llama with yarn",
     "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_t"
     "oken_id\": 2, \"head_dim\": 16, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"max_position_e"
     "mbeddings\": 256, \"mlp_bias\": false, \"model_type\": \"llama\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \""
     "num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"factor\": 8.0, \"original_max_position_embe"
     "ddings\": 32, \"rope_theta\": 10000.0, \"rope_type\": \"yarn\"}, \"tie_word_embeddings\": false, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.down_proj.weight", {64, 96}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {64, 64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.weight", {32, 64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 64}}, {"model.layers.1.mlp.up_proj.weight", {96, 64}},
      {"model.layers.1.mlp.down_proj.weight", {64, 96}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}},
      {"lm_head.weight", {96, 64}}},
     {{4.88815809, {0.04533701, 0.6621646, -0.9389625, 1.173859, -0.6413412, -1.464986, -0.4705684, 1.266302, 0.8929483, -1.540224, -1.465406}},
      {4.94066214, {0.5218579, -0.07943445, -0.9125688, 0.6801433, -0.345187, 0.1891504, -0.1816755, -0.7027356, -0.4198767, -0.8845348, -1.793115}}}},
    {"mistral with a window of 8",
     "{\"architectures\": [\"MistralForCausalLM\"], \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_token_id\": 2, \"head_dim\""
     ": 16, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"max_position_embeddings\": 256, \"model"
     "_type\": \"mistral\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"rms_norm_eps\":"
     " 1e-06, \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}, \"sliding_window\": 8, \"tie_word_emb"
     "eddings\": false, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.down_proj.weight", {64, 96}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {64, 64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.weight", {32, 64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 64}}, {"model.layers.1.mlp.up_proj.weight", {96, 64}},
      {"model.layers.1.mlp.down_proj.weight", {64, 96}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}},
      {"lm_head.weight", {96, 64}}},
     {{5.11499236, {0.4332464, -0.6970568, -1.185341, 0.9259161, 0.9569946, 1.473188, 0.748689, -0.4281259, -0.5398768, 0.6277386, 0.4932128}},
      {4.83338954, {-0.1194024, 0.4647088, -0.1372108, -0.01589751, 1.005785, -1.250845, 0.3285088, 0.559519, -0.5776731, 1.751271, 0.6699543}}}},
    {"qwen2",
     "{\"architectures\": [\"Qwen2ForCausalLM\"], \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_token_id\": 2, \"hidden_act\""
     ": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"layer_types\": [\"full_attention\", \"full_attention\", \"ful"
     "l_attention\"], \"max_position_embeddings\": 256, \"max_window_layers\": 28, \"model_type\": \"qwen2\", \"num_attention_"
     "heads\": 4, \"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"rope_"
     "theta\": 10000.0, \"rope_type\": \"default\"}, \"tie_word_embeddings\": true, \"use_sliding_window\": false, \"vocab_siz"
     "e\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}}, {"model.layers.0.self_attn.q_proj.bias", {64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.k_proj.bias", {32}},
      {"model.layers.0.self_attn.v_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.bias", {32}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.down_proj.weight", {64, 96}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {64, 64}}, {"model.layers.1.self_attn.q_proj.bias", {64}},
      {"model.layers.1.self_attn.k_proj.weight", {32, 64}}, {"model.layers.1.self_attn.k_proj.bias", {32}},
      {"model.layers.1.self_attn.v_proj.weight", {32, 64}}, {"model.layers.1.self_attn.v_proj.bias", {32}},
      {"model.layers.1.self_attn.o_proj.weight", {64, 64}}, {"model.layers.1.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.1.mlp.up_proj.weight", {96, 64}}, {"model.layers.1.mlp.down_proj.weight", {64, 96}},
      {"model.layers.1.input_layernorm.weight", {64}}, {"model.layers.1.post_attention_layernorm.weight", {64}},
      {"model.layers.2.self_attn.q_proj.weight", {64, 64}}, {"model.layers.2.self_attn.q_proj.bias", {64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.k_proj.bias", {32}},
      {"model.layers.2.self_attn.v_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.bias", {32}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}}},
     {{4.88134001, {0.8376876, -1.274004, -0.1474457, -0.1214349, -0.4964661, 0.3493836, 0.08201555, -1.098904, 1.452172, 1.254659, -0.06525311}},
      {5.04432353, {-0.5495477, -0.7571505, -0.1916111, 0.07749144, -1.756948, -1.394581, 0.541491, -1.177688, 0.3817988, 1.087673, 1.944958}}}},
    {"qwen2 with a window in its last layer",
     "{\"architectures\": [\"Qwen2ForCausalLM\"], \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_token_id\": 2, \"hidden_act\""
     ": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"layer_types\": [\"full_attention\", \"full_attention\", \"sli"
     "ding_attention\"], \"max_position_embeddings\": 256, \"max_window_layers\": 2, \"model_type\": \"qwen2\", \"num_attentio"
     "n_heads\": 4, \"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"rop"
     "e_theta\": 10000.0, \"rope_type\": \"default\"}, \"sliding_window\": 6, \"tie_word_embeddings\": false, \"use_sliding_wi"
     "ndow\": true, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}}, {"model.layers.0.self_attn.q_proj.bias", {64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.k_proj.bias", {32}},
      {"model.layers.0.self_attn.v_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.bias", {32}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.down_proj.weight", {64, 96}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {64, 64}}, {"model.layers.1.self_attn.q_proj.bias", {64}},
      {"model.layers.1.self_attn.k_proj.weight", {32, 64}}, {"model.layers.1.self_attn.k_proj.bias", {32}},
      {"model.layers.1.self_attn.v_proj.weight", {32, 64}}, {"model.layers.1.self_attn.v_proj.bias", {32}},
      {"model.layers.1.self_attn.o_proj.weight", {64, 64}}, {"model.layers.1.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.1.mlp.up_proj.weight", {96, 64}}, {"model.layers.1.mlp.down_proj.weight", {64, 96}},
      {"model.layers.1.input_layernorm.weight", {64}}, {"model.layers.1.post_attention_layernorm.weight", {64}},
      {"model.layers.2.self_attn.q_proj.weight", {64, 64}}, {"model.layers.2.self_attn.q_proj.bias", {64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.k_proj.bias", {32}},
      {"model.layers.2.self_attn.v_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.bias", {32}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}},
      {"lm_head.weight", {96, 64}}},
     {{5.00978348, {1.126522, -0.3070734, 1.340119, 0.8977, -0.3432425, -0.1926919, -0.5679627, 0.5269327, -0.9551186, 2.153188, -1.255881}},
      {5.10595681, {0.3019884, 0.8973763, -0.2870375, -0.2390303, 0.4011861, 0.5758294, -0.8886134, -0.1540648, -1.248519, 1.227632, -0.3065895}}}},
    {"qwen3",
     "{\"architectures\": [\"Qwen3ForCausalLM\"], \"attention_bias\": false, \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_t"
     "oken_id\": 2, \"head_dim\": 32, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"layer_types\": "
     "[\"full_attention\", \"full_attention\", \"full_attention\"], \"max_position_embeddings\": 256, \"max_window_layers\": 2"
     "8, \"model_type\": \"qwen3\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"rms_nor"
     "m_eps\": 1e-06, \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}, \"tie_word_embeddings\": true"
     ", \"use_sliding_window\": false, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {128, 64}},
      {"model.layers.0.self_attn.k_proj.weight", {64, 64}}, {"model.layers.0.self_attn.v_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 128}}, {"model.layers.0.self_attn.q_norm.weight", {32}},
      {"model.layers.0.self_attn.k_norm.weight", {32}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.down_proj.weight", {64, 96}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {128, 64}}, {"model.layers.1.self_attn.k_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.v_proj.weight", {64, 64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 128}},
      {"model.layers.1.self_attn.q_norm.weight", {32}}, {"model.layers.1.self_attn.k_norm.weight", {32}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 64}}, {"model.layers.1.mlp.up_proj.weight", {96, 64}},
      {"model.layers.1.mlp.down_proj.weight", {64, 96}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.q_proj.weight", {128, 64}},
      {"model.layers.2.self_attn.k_proj.weight", {64, 64}}, {"model.layers.2.self_attn.v_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 128}}, {"model.layers.2.self_attn.q_norm.weight", {32}},
      {"model.layers.2.self_attn.k_norm.weight", {32}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}}},
     {{5.22426005, {0.4467936, -0.02602029, 0.2234126, -0.1095922, 0.9116356, 0.6061901, -0.7223134, 1.31162, 0.4269596, -0.9238617, 0.3800114}},
      {5.27835626, {0.9812792, 0.06213396, 1.449511, 0.02549114, 0.4305171, 1.523742, 0.7501297, 1.680299, 1.728836, -1.427023, 1.2018}}}},
    {"phi3 with a window",
     "{\"architectures\": [\"Phi3ForCausalLM\"], \"bos_token_id\": 1, \"dtype\": \"float32\", \"embd_pdrop\": 0.0, \"eos_token_id"
     "\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"max_position_embeddings\": 256, \"model"
     "_type\": \"phi3\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \"num_key_value_heads\": 4, \"original_max_posi"
     "tion_embeddings\": 4096, \"resid_pdrop\": 0.0, \"rms_norm_eps\": 1e-05, \"rope_parameters\": {\"partial_rotary_factor\""
     ": 1.0, \"rope_theta\": 10000.0, \"rope_type\": \"default\"}, \"sliding_window\": 9, \"tie_word_embeddings\": false, \"voc"
     "ab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.qkv_proj.weight", {192, 64}}, {"model.layers.0.mlp.gate_up_proj.weight", {192, 64}},
      {"model.layers.0.mlp.down_proj.weight", {64, 96}}, {"model.layers.0.input_layernorm.weight", {64}},
      {"model.layers.0.post_attention_layernorm.weight", {64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.qkv_proj.weight", {192, 64}}, {"model.layers.1.mlp.gate_up_proj.weight", {192, 64}},
      {"model.layers.1.mlp.down_proj.weight", {64, 96}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.qkv_proj.weight", {192, 64}}, {"model.layers.2.mlp.gate_up_proj.weight", {192, 64}},
      {"model.layers.2.mlp.down_proj.weight", {64, 96}}, {"model.layers.2.input_layernorm.weight", {64}},
      {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}}, {"lm_head.weight", {96, 64}}},
     {{5.0914526, {-0.8254152, 0.4206189, 0.6459433, -0.896024, -2.372623, 1.175216, -0.8351532, 0.6489411, 0.9054268, -1.718341, 0.2599982}},
      {5.1373831, {-0.3137141, 2.533881, 0.1123721, 0.575773, 0.5425764, -0.9188317, -1.161416, -1.523975, 1.719356, 0.5632018, 0.9067007}}}},
    {"phi3 with longrope beyond its trained context, three quarters of heads rotating",
     "{\"architectures\": [\"Phi3ForCausalLM\"], \"bos_token_id\": 1, \"dtype\": \"float32\", \"embd_pdrop\": 0.0, \"eos_token_id"
     "\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"max_position_embeddings\": 256, \"model"
     "_type\": \"phi3\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"original_max_posi"
     "tion_embeddings\": 32, \"partial_rotary_factor\": 0.75, \"resid_pdrop\": 0.0, \"rms_norm_eps\": 1e-05, \"rope_paramete"
     "rs\": {\"long_factor\": [1.5, 3.5, 5.5, 7.5, 9.5, 11.5], \"original_max_position_embeddings\": 32, \"partial_rotary_"
     "factor\": 0.75, \"rope_theta\": 10000.0, \"rope_type\": \"longrope\", \"short_factor\": [1.0, 1.05, 1.1, 1.15, 1.2, 1.2"
     "5]}, \"tie_word_embeddings\": false, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.qkv_proj.weight", {128, 64}}, {"model.layers.0.mlp.gate_up_proj.weight", {192, 64}},
      {"model.layers.0.mlp.down_proj.weight", {64, 96}}, {"model.layers.0.input_layernorm.weight", {64}},
      {"model.layers.0.post_attention_layernorm.weight", {64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.qkv_proj.weight", {128, 64}}, {"model.layers.1.mlp.gate_up_proj.weight", {192, 64}},
      {"model.layers.1.mlp.down_proj.weight", {64, 96}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.qkv_proj.weight", {128, 64}}, {"model.layers.2.mlp.gate_up_proj.weight", {192, 64}},
      {"model.layers.2.mlp.down_proj.weight", {64, 96}}, {"model.layers.2.input_layernorm.weight", {64}},
      {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}}, {"lm_head.weight", {96, 64}}},
     {{4.95757725, {-0.9751515, 0.8029288, 0.3544907, -1.243556, 0.4242928, 0.4649845, 1.050909, -1.32806, 0.3910315, -0.1096948, 0.8056765}},
      {4.96609484, {-0.699236, 1.365143, 0.5503466, -1.110939, -0.01118344, 0.2350998, 0.7455382, 0.6587998, -0.3257429, 0.0861944, 1.50157}}}},
    {"smollm3: a layer without positions",
     "{\"architectures\": [\"SmolLM3ForCausalLM\"], \"attention_bias\": false, \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos"
     "_token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"layer_types\": [\"full_attenti"
     "on\", \"full_attention\", \"full_attention\"], \"max_position_embeddings\": 256, \"mlp_bias\": false, \"model_type\": \"sm"
     "ollm3\", \"no_rope_layer_interval\": 4, \"no_rope_layers\": [1, 0, 1], \"num_attention_heads\": 4, \"num_hidden_layers"
     "\": 3, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"rope_theta\": 2000000.0, \"rope_type"
     "\": \"default\"}, \"tie_word_embeddings\": true, \"use_sliding_window\": false, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.down_proj.weight", {64, 96}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {64, 64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.weight", {32, 64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 64}}, {"model.layers.1.mlp.up_proj.weight", {96, 64}},
      {"model.layers.1.mlp.down_proj.weight", {64, 96}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}}},
     {{5.00208779, {-0.4400316, -0.2167761, -1.239262, -0.8160219, -0.9203757, 0.3611866, -0.7693156, 0.0706657, 0.200736, -1.661606, 1.766395}},
      {5.33339449, {0.6362263, -0.09091152, -1.999465, 1.897951, -0.7702693, 0.3361724, -0.2109963, 0.6873893, -0.7431972, -2.234292, 0.7722452}}}},
    {"qwen3 with biases",
     "{\"architectures\": [\"Qwen3ForCausalLM\"], \"attention_bias\": true, \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_to"
     "ken_id\": 2, \"head_dim\": 16, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"layer_types\": ["
     "\"full_attention\", \"full_attention\", \"full_attention\"], \"max_position_embeddings\": 256, \"max_window_layers\": 28"
     ", \"model_type\": \"qwen3\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"rms_norm"
     "_eps\": 1e-06, \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}, \"tie_word_embeddings\": false"
     ", \"use_sliding_window\": false, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}}, {"model.layers.0.self_attn.q_proj.bias", {64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.k_proj.bias", {32}},
      {"model.layers.0.self_attn.v_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.bias", {32}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.self_attn.o_proj.bias", {64}},
      {"model.layers.0.self_attn.q_norm.weight", {16}}, {"model.layers.0.self_attn.k_norm.weight", {16}},
      {"model.layers.0.mlp.gate_proj.weight", {96, 64}}, {"model.layers.0.mlp.up_proj.weight", {96, 64}},
      {"model.layers.0.mlp.down_proj.weight", {64, 96}}, {"model.layers.0.input_layernorm.weight", {64}},
      {"model.layers.0.post_attention_layernorm.weight", {64}}, {"model.layers.1.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.q_proj.bias", {64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.k_proj.bias", {32}}, {"model.layers.1.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.bias", {32}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.o_proj.bias", {64}}, {"model.layers.1.self_attn.q_norm.weight", {16}},
      {"model.layers.1.self_attn.k_norm.weight", {16}}, {"model.layers.1.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.1.mlp.up_proj.weight", {96, 64}}, {"model.layers.1.mlp.down_proj.weight", {64, 96}},
      {"model.layers.1.input_layernorm.weight", {64}}, {"model.layers.1.post_attention_layernorm.weight", {64}},
      {"model.layers.2.self_attn.q_proj.weight", {64, 64}}, {"model.layers.2.self_attn.q_proj.bias", {64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.k_proj.bias", {32}},
      {"model.layers.2.self_attn.v_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.bias", {32}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.self_attn.o_proj.bias", {64}},
      {"model.layers.2.self_attn.q_norm.weight", {16}}, {"model.layers.2.self_attn.k_norm.weight", {16}},
      {"model.layers.2.mlp.gate_proj.weight", {96, 64}}, {"model.layers.2.mlp.up_proj.weight", {96, 64}},
      {"model.layers.2.mlp.down_proj.weight", {64, 96}}, {"model.layers.2.input_layernorm.weight", {64}},
      {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}}, {"lm_head.weight", {96, 64}}},
     {{5.07282552, {-2.429899, 1.89132, -0.49587, -0.1817114, -0.3506593, 0.1966748, -0.5913892, -1.936803, 0.6091254, 0.3505867, 0.9278776}},
      {5.13694003, {-1.220693, 0.5510866, -0.2460597, 2.115376, 0.7885779, -0.4656833, -0.2962429, -1.572255, -0.3885854, 0.939667, -0.1509476}}}},
    {"granite with its four multipliers",
     "{\"architectures\": [\"GraniteForCausalLM\"], \"attention_bias\": true, \"attention_multiplier\": 0.11, \"bos_token_id\""
     ": 1, \"dtype\": \"float32\", \"embedding_multiplier\": 12.0, \"eos_token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\":"
     " 64, \"intermediate_size\": 96, \"logits_scaling\": 3.0, \"max_position_embeddings\": 256, \"mlp_bias\": false, \"model"
     "_type\": \"granite\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"residual_multi"
     "plier\": 0.22, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}, \"tie_"
     "word_embeddings\": true, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}}, {"model.layers.0.self_attn.q_proj.bias", {64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.k_proj.bias", {32}},
      {"model.layers.0.self_attn.v_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.bias", {32}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.self_attn.o_proj.bias", {64}},
      {"model.layers.0.mlp.gate_proj.weight", {96, 64}}, {"model.layers.0.mlp.up_proj.weight", {96, 64}},
      {"model.layers.0.mlp.down_proj.weight", {64, 96}}, {"model.layers.0.input_layernorm.weight", {64}},
      {"model.layers.0.post_attention_layernorm.weight", {64}}, {"model.layers.1.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.q_proj.bias", {64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.k_proj.bias", {32}}, {"model.layers.1.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.bias", {32}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.o_proj.bias", {64}}, {"model.layers.1.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.1.mlp.up_proj.weight", {96, 64}}, {"model.layers.1.mlp.down_proj.weight", {64, 96}},
      {"model.layers.1.input_layernorm.weight", {64}}, {"model.layers.1.post_attention_layernorm.weight", {64}},
      {"model.layers.2.self_attn.q_proj.weight", {64, 64}}, {"model.layers.2.self_attn.q_proj.bias", {64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.k_proj.bias", {32}},
      {"model.layers.2.self_attn.v_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.bias", {32}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.self_attn.o_proj.bias", {64}},
      {"model.layers.2.mlp.gate_proj.weight", {96, 64}}, {"model.layers.2.mlp.up_proj.weight", {96, 64}},
      {"model.layers.2.mlp.down_proj.weight", {64, 96}}, {"model.layers.2.input_layernorm.weight", {64}},
      {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}}},
     {{4.76656385, {0.1574783, 0.4787656, -0.00810313, 0.2773486, -0.07015167, -0.5193725, 0.489317, -0.1365259, -0.07928306, 0.2517262, -1.098865}},
      {4.7352848, {-0.2103618, -0.4343776, -0.1697673, 0.5811042, 0.2858804, -0.004303518, 0.27683, -0.2112584, -0.1375904, -0.5388984, -0.1653838}}}},
    {"gemma",
     "{\"architectures\": [\"GemmaForCausalLM\"], \"attention_bias\": false, \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_t"
     "oken_id\": 2, \"head_dim\": 24, \"hidden_act\": \"gelu_pytorch_tanh\", \"hidden_size\": 80, \"intermediate_size\": 96, \"m"
     "ax_position_embeddings\": 256, \"model_type\": \"gemma\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \"num_ke"
     "y_value_heads\": 1, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}, "
     "\"tie_word_embeddings\": true, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 80}}, {"model.layers.0.self_attn.q_proj.weight", {96, 80}},
      {"model.layers.0.self_attn.k_proj.weight", {24, 80}}, {"model.layers.0.self_attn.v_proj.weight", {24, 80}},
      {"model.layers.0.self_attn.o_proj.weight", {80, 96}}, {"model.layers.0.mlp.gate_proj.weight", {96, 80}},
      {"model.layers.0.mlp.up_proj.weight", {96, 80}}, {"model.layers.0.mlp.down_proj.weight", {80, 96}},
      {"model.layers.0.input_layernorm.weight", {80}}, {"model.layers.0.post_attention_layernorm.weight", {80}},
      {"model.layers.1.self_attn.q_proj.weight", {96, 80}}, {"model.layers.1.self_attn.k_proj.weight", {24, 80}},
      {"model.layers.1.self_attn.v_proj.weight", {24, 80}}, {"model.layers.1.self_attn.o_proj.weight", {80, 96}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 80}}, {"model.layers.1.mlp.up_proj.weight", {96, 80}},
      {"model.layers.1.mlp.down_proj.weight", {80, 96}}, {"model.layers.1.input_layernorm.weight", {80}},
      {"model.layers.1.post_attention_layernorm.weight", {80}}, {"model.layers.2.self_attn.q_proj.weight", {96, 80}},
      {"model.layers.2.self_attn.k_proj.weight", {24, 80}}, {"model.layers.2.self_attn.v_proj.weight", {24, 80}},
      {"model.layers.2.self_attn.o_proj.weight", {80, 96}}, {"model.layers.2.mlp.gate_proj.weight", {96, 80}},
      {"model.layers.2.mlp.up_proj.weight", {96, 80}}, {"model.layers.2.mlp.down_proj.weight", {80, 96}},
      {"model.layers.2.input_layernorm.weight", {80}}, {"model.layers.2.post_attention_layernorm.weight", {80}}, {"model.norm.weight", {80}}},
     {{5.14918091, {-0.952227, -0.1033394, -0.1234996, 0.8239368, -0.6642815, 2.082592, -0.1092368, 0.414745, 1.266526, -0.4852396, 0.8476861}},
      {5.95534197, {0.5464437, -0.4833854, 0.8310688, 0.9784827, -0.6824928, -0.2211673, 1.123132, 0.7105927, 0.2772533, 0.9762365, 0.3900109}}}},
    {"qwen3 with a window in every other layer",
     "{\"architectures\": [\"Qwen3ForCausalLM\"], \"attention_bias\": false, \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_t"
     "oken_id\": 2, \"head_dim\": 16, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"layer_types\": "
     "[\"sliding_attention\", \"full_attention\", \"sliding_attention\"], \"max_position_embeddings\": 256, \"max_window_laye"
     "rs\": 0, \"model_type\": \"qwen3\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"rm"
     "s_norm_eps\": 1e-06, \"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}, \"sliding_window\": 6, \""
     "tie_word_embeddings\": false, \"use_sliding_window\": true, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.self_attn.q_norm.weight", {16}},
      {"model.layers.0.self_attn.k_norm.weight", {16}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.down_proj.weight", {64, 96}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {64, 64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.weight", {32, 64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.q_norm.weight", {16}}, {"model.layers.1.self_attn.k_norm.weight", {16}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 64}}, {"model.layers.1.mlp.up_proj.weight", {96, 64}},
      {"model.layers.1.mlp.down_proj.weight", {64, 96}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.self_attn.q_norm.weight", {16}},
      {"model.layers.2.self_attn.k_norm.weight", {16}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}},
      {"lm_head.weight", {96, 64}}},
     {{5.12458343, {1.10463, -0.2694493, -1.144811, -0.6736329, -1.102008, -1.214736, -0.4520953, -1.098192, 1.901799, -0.6428579, 2.07395}},
      {4.82017021, {-0.9161319, 1.312655, -1.271267, -2.233146, -1.733261, -0.2287895, 0.05453361, 0.1706088, 0.1049928, -0.5171005, -0.4245939}}}},
    {"mixtral with a window",
     "{\"architectures\": [\"MixtralForCausalLM\"], \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_token_id\": 2, \"hidden_ac"
     "t\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"max_position_embeddings\": 256, \"model_type\": \"mixtral"
     "\", \"num_attention_heads\": 4, \"num_experts_per_tok\": 2, \"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"num_"
     "local_experts\": 6, \"output_router_logits\": false, \"rms_norm_eps\": 1e-05, \"rope_parameters\": {\"rope_theta\": 100"
     "0000.0, \"rope_type\": \"default\"}, \"router_aux_loss_coef\": 0.001, \"router_jitter_noise\": 0.0, \"sliding_window\": "
     "9, \"tie_word_embeddings\": false, \"vocab_size\": 96}",
     {{"lm_head.weight", {96, 64}}, {"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.block_sparse_moe.experts.0.w1.weight", {96, 64}},
      {"model.layers.0.block_sparse_moe.experts.0.w2.weight", {64, 96}}, {"model.layers.0.block_sparse_moe.experts.0.w3.weight", {96, 64}},
      {"model.layers.0.block_sparse_moe.experts.1.w1.weight", {96, 64}}, {"model.layers.0.block_sparse_moe.experts.1.w2.weight", {64, 96}},
      {"model.layers.0.block_sparse_moe.experts.1.w3.weight", {96, 64}}, {"model.layers.0.block_sparse_moe.experts.2.w1.weight", {96, 64}},
      {"model.layers.0.block_sparse_moe.experts.2.w2.weight", {64, 96}}, {"model.layers.0.block_sparse_moe.experts.2.w3.weight", {96, 64}},
      {"model.layers.0.block_sparse_moe.experts.3.w1.weight", {96, 64}}, {"model.layers.0.block_sparse_moe.experts.3.w2.weight", {64, 96}},
      {"model.layers.0.block_sparse_moe.experts.3.w3.weight", {96, 64}}, {"model.layers.0.block_sparse_moe.experts.4.w1.weight", {96, 64}},
      {"model.layers.0.block_sparse_moe.experts.4.w2.weight", {64, 96}}, {"model.layers.0.block_sparse_moe.experts.4.w3.weight", {96, 64}},
      {"model.layers.0.block_sparse_moe.experts.5.w1.weight", {96, 64}}, {"model.layers.0.block_sparse_moe.experts.5.w2.weight", {64, 96}},
      {"model.layers.0.block_sparse_moe.experts.5.w3.weight", {96, 64}}, {"model.layers.0.block_sparse_moe.gate.weight", {6, 64}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.q_proj.weight", {64, 64}}, {"model.layers.0.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.1.block_sparse_moe.experts.0.w1.weight", {96, 64}}, {"model.layers.1.block_sparse_moe.experts.0.w2.weight", {64, 96}},
      {"model.layers.1.block_sparse_moe.experts.0.w3.weight", {96, 64}}, {"model.layers.1.block_sparse_moe.experts.1.w1.weight", {96, 64}},
      {"model.layers.1.block_sparse_moe.experts.1.w2.weight", {64, 96}}, {"model.layers.1.block_sparse_moe.experts.1.w3.weight", {96, 64}},
      {"model.layers.1.block_sparse_moe.experts.2.w1.weight", {96, 64}}, {"model.layers.1.block_sparse_moe.experts.2.w2.weight", {64, 96}},
      {"model.layers.1.block_sparse_moe.experts.2.w3.weight", {96, 64}}, {"model.layers.1.block_sparse_moe.experts.3.w1.weight", {96, 64}},
      {"model.layers.1.block_sparse_moe.experts.3.w2.weight", {64, 96}}, {"model.layers.1.block_sparse_moe.experts.3.w3.weight", {96, 64}},
      {"model.layers.1.block_sparse_moe.experts.4.w1.weight", {96, 64}}, {"model.layers.1.block_sparse_moe.experts.4.w2.weight", {64, 96}},
      {"model.layers.1.block_sparse_moe.experts.4.w3.weight", {96, 64}}, {"model.layers.1.block_sparse_moe.experts.5.w1.weight", {96, 64}},
      {"model.layers.1.block_sparse_moe.experts.5.w2.weight", {64, 96}}, {"model.layers.1.block_sparse_moe.experts.5.w3.weight", {96, 64}},
      {"model.layers.1.block_sparse_moe.gate.weight", {6, 64}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.o_proj.weight", {64, 64}}, {"model.layers.1.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.v_proj.weight", {32, 64}}, {"model.layers.2.block_sparse_moe.experts.0.w1.weight", {96, 64}},
      {"model.layers.2.block_sparse_moe.experts.0.w2.weight", {64, 96}}, {"model.layers.2.block_sparse_moe.experts.0.w3.weight", {96, 64}},
      {"model.layers.2.block_sparse_moe.experts.1.w1.weight", {96, 64}}, {"model.layers.2.block_sparse_moe.experts.1.w2.weight", {64, 96}},
      {"model.layers.2.block_sparse_moe.experts.1.w3.weight", {96, 64}}, {"model.layers.2.block_sparse_moe.experts.2.w1.weight", {96, 64}},
      {"model.layers.2.block_sparse_moe.experts.2.w2.weight", {64, 96}}, {"model.layers.2.block_sparse_moe.experts.2.w3.weight", {96, 64}},
      {"model.layers.2.block_sparse_moe.experts.3.w1.weight", {96, 64}}, {"model.layers.2.block_sparse_moe.experts.3.w2.weight", {64, 96}},
      {"model.layers.2.block_sparse_moe.experts.3.w3.weight", {96, 64}}, {"model.layers.2.block_sparse_moe.experts.4.w1.weight", {96, 64}},
      {"model.layers.2.block_sparse_moe.experts.4.w2.weight", {64, 96}}, {"model.layers.2.block_sparse_moe.experts.4.w3.weight", {96, 64}},
      {"model.layers.2.block_sparse_moe.experts.5.w1.weight", {96, 64}}, {"model.layers.2.block_sparse_moe.experts.5.w2.weight", {64, 96}},
      {"model.layers.2.block_sparse_moe.experts.5.w3.weight", {96, 64}}, {"model.layers.2.block_sparse_moe.gate.weight", {6, 64}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.weight", {64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.q_proj.weight", {64, 64}}, {"model.layers.2.self_attn.v_proj.weight", {32, 64}}, {"model.norm.weight", {64}}},
     {{5.06165793, {-0.4756059, 0.326901, -0.5009925, 0.356075, -0.3367567, -0.9095043, 1.37141, 0.5847412, 0.03472068, -0.6769894, 0.6897003}},
      {5.12269547, {-0.5557616, -0.00194515, -1.327509, -0.05182078, 1.059637, -1.007755, 2.376223, -0.2405513, -0.9720884, -0.1532379, 1.618677}}}},
    {"qwen2-moe: a plain layer by step and one by name, a shared expert, weights that do not add up to 1",
     "{\"architectures\": [\"Qwen2MoeForCausalLM\"], \"bos_token_id\": 1, \"decoder_sparse_step\": 2, \"dtype\": \"float32\", \"e"
     "os_token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"layer_types\": [\"sliding_at"
     "tention\", \"full_attention\", \"sliding_attention\", \"full_attention\", \"full_attention\"], \"max_position_embeddings"
     "\": 256, \"max_window_layers\": 3, \"mlp_only_layers\": [3], \"model_type\": \"qwen2_moe\", \"moe_intermediate_size\": 24"
     ", \"norm_topk_prob\": false, \"num_attention_heads\": 4, \"num_experts\": 5, \"num_experts_per_tok\": 3, \"num_hidden_l"
     "ayers\": 5, \"num_key_value_heads\": 2, \"output_router_logits\": false, \"qkv_bias\": true, \"rms_norm_eps\": 1e-06, \""
     "rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}, \"router_aux_loss_coef\": 0.001, \"shared_expe"
     "rt_intermediate_size\": 40, \"sliding_window\": 7, \"tie_word_embeddings\": false, \"use_sliding_window\": true, \"voc"
     "ab_size\": 96}",
     {{"lm_head.weight", {96, 64}}, {"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.input_layernorm.weight", {64}},
      {"model.layers.0.mlp.down_proj.weight", {64, 96}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.post_attention_layernorm.weight", {64}},
      {"model.layers.0.self_attn.k_proj.bias", {32}}, {"model.layers.0.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.self_attn.q_proj.bias", {64}},
      {"model.layers.0.self_attn.q_proj.weight", {64, 64}}, {"model.layers.0.self_attn.v_proj.bias", {32}},
      {"model.layers.0.self_attn.v_proj.weight", {32, 64}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.mlp.experts.0.down_proj.weight", {64, 24}}, {"model.layers.1.mlp.experts.0.gate_proj.weight", {24, 64}},
      {"model.layers.1.mlp.experts.0.up_proj.weight", {24, 64}}, {"model.layers.1.mlp.experts.1.down_proj.weight", {64, 24}},
      {"model.layers.1.mlp.experts.1.gate_proj.weight", {24, 64}}, {"model.layers.1.mlp.experts.1.up_proj.weight", {24, 64}},
      {"model.layers.1.mlp.experts.2.down_proj.weight", {64, 24}}, {"model.layers.1.mlp.experts.2.gate_proj.weight", {24, 64}},
      {"model.layers.1.mlp.experts.2.up_proj.weight", {24, 64}}, {"model.layers.1.mlp.experts.3.down_proj.weight", {64, 24}},
      {"model.layers.1.mlp.experts.3.gate_proj.weight", {24, 64}}, {"model.layers.1.mlp.experts.3.up_proj.weight", {24, 64}},
      {"model.layers.1.mlp.experts.4.down_proj.weight", {64, 24}}, {"model.layers.1.mlp.experts.4.gate_proj.weight", {24, 64}},
      {"model.layers.1.mlp.experts.4.up_proj.weight", {24, 64}}, {"model.layers.1.mlp.gate.weight", {5, 64}},
      {"model.layers.1.mlp.shared_expert.down_proj.weight", {64, 40}}, {"model.layers.1.mlp.shared_expert.gate_proj.weight", {40, 64}},
      {"model.layers.1.mlp.shared_expert.up_proj.weight", {40, 64}}, {"model.layers.1.mlp.shared_expert_gate.weight", {1, 64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.1.self_attn.k_proj.bias", {32}},
      {"model.layers.1.self_attn.k_proj.weight", {32, 64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.q_proj.bias", {64}}, {"model.layers.1.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.v_proj.bias", {32}}, {"model.layers.1.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.mlp.gate_proj.weight", {96, 64}}, {"model.layers.2.mlp.up_proj.weight", {96, 64}},
      {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.layers.2.self_attn.k_proj.bias", {32}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.q_proj.bias", {64}}, {"model.layers.2.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.v_proj.bias", {32}}, {"model.layers.2.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.3.input_layernorm.weight", {64}}, {"model.layers.3.mlp.down_proj.weight", {64, 96}},
      {"model.layers.3.mlp.gate_proj.weight", {96, 64}}, {"model.layers.3.mlp.up_proj.weight", {96, 64}},
      {"model.layers.3.post_attention_layernorm.weight", {64}}, {"model.layers.3.self_attn.k_proj.bias", {32}},
      {"model.layers.3.self_attn.k_proj.weight", {32, 64}}, {"model.layers.3.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.3.self_attn.q_proj.bias", {64}}, {"model.layers.3.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.3.self_attn.v_proj.bias", {32}}, {"model.layers.3.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.4.input_layernorm.weight", {64}}, {"model.layers.4.mlp.down_proj.weight", {64, 96}},
      {"model.layers.4.mlp.gate_proj.weight", {96, 64}}, {"model.layers.4.mlp.up_proj.weight", {96, 64}},
      {"model.layers.4.post_attention_layernorm.weight", {64}}, {"model.layers.4.self_attn.k_proj.bias", {32}},
      {"model.layers.4.self_attn.k_proj.weight", {32, 64}}, {"model.layers.4.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.4.self_attn.q_proj.bias", {64}}, {"model.layers.4.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.4.self_attn.v_proj.bias", {32}}, {"model.layers.4.self_attn.v_proj.weight", {32, 64}}, {"model.norm.weight", {64}}},
     {{5.10176862, {0.07228768, -1.08332, 0.6531131, 1.231631, 2.325548, 0.3009817, -0.01319398, 0.1130762, -1.344629, -0.9783998, 0.08080294}},
      {4.94865604, {-0.1362853, -1.150359, 0.01336295, 1.568786, 2.191891, 0.1456984, -0.0210438, 1.750778, -1.995934, -0.4106709, 0.1778195}}}},
    {"qwen3-moe with heads of their own size and weights that add up to 1",
     "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"attention_bias\": false, \"bos_token_id\": 1, \"decoder_sparse_step\": "
     "1, \"dtype\": \"float32\", \"eos_token_id\": 2, \"head_dim\": 24, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermedia"
     "te_size\": 96, \"max_position_embeddings\": 256, \"mlp_only_layers\": [2], \"model_type\": \"qwen3_moe\", \"moe_intermed"
     "iate_size\": 32, \"norm_topk_prob\": true, \"num_attention_heads\": 4, \"num_experts_per_tok\": 3, \"num_hidden_layers"
     "\": 3, \"num_key_value_heads\": 2, \"num_local_experts\": 7, \"output_router_logits\": false, \"rms_norm_eps\": 1e-06, "
     "\"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}, \"router_aux_loss_coef\": 0.001, \"tie_word_e"
     "mbeddings\": false, \"use_sliding_window\": false, \"vocab_size\": 96}",
     {{"lm_head.weight", {96, 64}}, {"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.input_layernorm.weight", {64}},
      {"model.layers.0.mlp.experts.0.down_proj.weight", {64, 32}}, {"model.layers.0.mlp.experts.0.gate_proj.weight", {32, 64}},
      {"model.layers.0.mlp.experts.0.up_proj.weight", {32, 64}}, {"model.layers.0.mlp.experts.1.down_proj.weight", {64, 32}},
      {"model.layers.0.mlp.experts.1.gate_proj.weight", {32, 64}}, {"model.layers.0.mlp.experts.1.up_proj.weight", {32, 64}},
      {"model.layers.0.mlp.experts.2.down_proj.weight", {64, 32}}, {"model.layers.0.mlp.experts.2.gate_proj.weight", {32, 64}},
      {"model.layers.0.mlp.experts.2.up_proj.weight", {32, 64}}, {"model.layers.0.mlp.experts.3.down_proj.weight", {64, 32}},
      {"model.layers.0.mlp.experts.3.gate_proj.weight", {32, 64}}, {"model.layers.0.mlp.experts.3.up_proj.weight", {32, 64}},
      {"model.layers.0.mlp.experts.4.down_proj.weight", {64, 32}}, {"model.layers.0.mlp.experts.4.gate_proj.weight", {32, 64}},
      {"model.layers.0.mlp.experts.4.up_proj.weight", {32, 64}}, {"model.layers.0.mlp.experts.5.down_proj.weight", {64, 32}},
      {"model.layers.0.mlp.experts.5.gate_proj.weight", {32, 64}}, {"model.layers.0.mlp.experts.5.up_proj.weight", {32, 64}},
      {"model.layers.0.mlp.experts.6.down_proj.weight", {64, 32}}, {"model.layers.0.mlp.experts.6.gate_proj.weight", {32, 64}},
      {"model.layers.0.mlp.experts.6.up_proj.weight", {32, 64}}, {"model.layers.0.mlp.gate.weight", {7, 64}},
      {"model.layers.0.post_attention_layernorm.weight", {64}}, {"model.layers.0.self_attn.k_norm.weight", {24}},
      {"model.layers.0.self_attn.k_proj.weight", {48, 64}}, {"model.layers.0.self_attn.o_proj.weight", {64, 96}},
      {"model.layers.0.self_attn.q_norm.weight", {24}}, {"model.layers.0.self_attn.q_proj.weight", {96, 64}},
      {"model.layers.0.self_attn.v_proj.weight", {48, 64}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.mlp.experts.0.down_proj.weight", {64, 32}}, {"model.layers.1.mlp.experts.0.gate_proj.weight", {32, 64}},
      {"model.layers.1.mlp.experts.0.up_proj.weight", {32, 64}}, {"model.layers.1.mlp.experts.1.down_proj.weight", {64, 32}},
      {"model.layers.1.mlp.experts.1.gate_proj.weight", {32, 64}}, {"model.layers.1.mlp.experts.1.up_proj.weight", {32, 64}},
      {"model.layers.1.mlp.experts.2.down_proj.weight", {64, 32}}, {"model.layers.1.mlp.experts.2.gate_proj.weight", {32, 64}},
      {"model.layers.1.mlp.experts.2.up_proj.weight", {32, 64}}, {"model.layers.1.mlp.experts.3.down_proj.weight", {64, 32}},
      {"model.layers.1.mlp.experts.3.gate_proj.weight", {32, 64}}, {"model.layers.1.mlp.experts.3.up_proj.weight", {32, 64}},
      {"model.layers.1.mlp.experts.4.down_proj.weight", {64, 32}}, {"model.layers.1.mlp.experts.4.gate_proj.weight", {32, 64}},
      {"model.layers.1.mlp.experts.4.up_proj.weight", {32, 64}}, {"model.layers.1.mlp.experts.5.down_proj.weight", {64, 32}},
      {"model.layers.1.mlp.experts.5.gate_proj.weight", {32, 64}}, {"model.layers.1.mlp.experts.5.up_proj.weight", {32, 64}},
      {"model.layers.1.mlp.experts.6.down_proj.weight", {64, 32}}, {"model.layers.1.mlp.experts.6.gate_proj.weight", {32, 64}},
      {"model.layers.1.mlp.experts.6.up_proj.weight", {32, 64}}, {"model.layers.1.mlp.gate.weight", {7, 64}},
      {"model.layers.1.post_attention_layernorm.weight", {64}}, {"model.layers.1.self_attn.k_norm.weight", {24}},
      {"model.layers.1.self_attn.k_proj.weight", {48, 64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 96}},
      {"model.layers.1.self_attn.q_norm.weight", {24}}, {"model.layers.1.self_attn.q_proj.weight", {96, 64}},
      {"model.layers.1.self_attn.v_proj.weight", {48, 64}}, {"model.layers.2.input_layernorm.weight", {64}},
      {"model.layers.2.mlp.down_proj.weight", {64, 96}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.post_attention_layernorm.weight", {64}},
      {"model.layers.2.self_attn.k_norm.weight", {24}}, {"model.layers.2.self_attn.k_proj.weight", {48, 64}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 96}}, {"model.layers.2.self_attn.q_norm.weight", {24}},
      {"model.layers.2.self_attn.q_proj.weight", {96, 64}}, {"model.layers.2.self_attn.v_proj.weight", {48, 64}}, {"model.norm.weight", {64}}},
     {{4.85804798, {0.236202, 0.6458636, -0.6837018, -1.062377, -0.6779961, -1.471355, -0.4101048, 0.3410284, -0.2360969, -0.6344118, 0.7836297}},
      {4.78984258, {1.08046, 1.891355, -1.42512, -0.0802951, -1.554226, -0.5542685, -0.2878367, -0.03549959, 0.5860446, -1.105297, 0.08581399}}}},
    {"gemma2 with caps that bend, a window in every other layer",
     "{\"architectures\": [\"Gemma2ForCausalLM\"], \"attention_bias\": false, \"attn_logit_softcapping\": 2.0, \"bos_token_id"
     "\": 1, \"dtype\": \"float32\", \"eos_token_id\": 2, \"final_logit_softcapping\": 3.0, \"head_dim\": 24, \"hidden_activatio"
     "n\": \"gelu_pytorch_tanh\", \"hidden_size\": 80, \"intermediate_size\": 96, \"layer_types\": [\"sliding_attention\", \"ful"
     "l_attention\", \"sliding_attention\"], \"max_position_embeddings\": 256, \"model_type\": \"gemma2\", \"num_attention_hea"
     "ds\": 4, \"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"query_pre_attn_scalar\": 20, \"rms_norm_eps\": 1e-06, "
     "\"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}, \"sliding_window\": 7, \"tie_word_embeddings\""
     ": true, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 80}}, {"model.layers.0.self_attn.q_proj.weight", {96, 80}},
      {"model.layers.0.self_attn.k_proj.weight", {48, 80}}, {"model.layers.0.self_attn.v_proj.weight", {48, 80}},
      {"model.layers.0.self_attn.o_proj.weight", {80, 96}}, {"model.layers.0.mlp.gate_proj.weight", {96, 80}},
      {"model.layers.0.mlp.up_proj.weight", {96, 80}}, {"model.layers.0.mlp.down_proj.weight", {80, 96}},
      {"model.layers.0.input_layernorm.weight", {80}}, {"model.layers.0.post_attention_layernorm.weight", {80}},
      {"model.layers.0.pre_feedforward_layernorm.weight", {80}}, {"model.layers.0.post_feedforward_layernorm.weight", {80}},
      {"model.layers.1.self_attn.q_proj.weight", {96, 80}}, {"model.layers.1.self_attn.k_proj.weight", {48, 80}},
      {"model.layers.1.self_attn.v_proj.weight", {48, 80}}, {"model.layers.1.self_attn.o_proj.weight", {80, 96}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 80}}, {"model.layers.1.mlp.up_proj.weight", {96, 80}},
      {"model.layers.1.mlp.down_proj.weight", {80, 96}}, {"model.layers.1.input_layernorm.weight", {80}},
      {"model.layers.1.post_attention_layernorm.weight", {80}}, {"model.layers.1.pre_feedforward_layernorm.weight", {80}},
      {"model.layers.1.post_feedforward_layernorm.weight", {80}}, {"model.layers.2.self_attn.q_proj.weight", {96, 80}},
      {"model.layers.2.self_attn.k_proj.weight", {48, 80}}, {"model.layers.2.self_attn.v_proj.weight", {48, 80}},
      {"model.layers.2.self_attn.o_proj.weight", {80, 96}}, {"model.layers.2.mlp.gate_proj.weight", {96, 80}},
      {"model.layers.2.mlp.up_proj.weight", {96, 80}}, {"model.layers.2.mlp.down_proj.weight", {80, 96}},
      {"model.layers.2.input_layernorm.weight", {80}}, {"model.layers.2.post_attention_layernorm.weight", {80}},
      {"model.layers.2.pre_feedforward_layernorm.weight", {80}}, {"model.layers.2.post_feedforward_layernorm.weight", {80}},
      {"model.norm.weight", {80}}},
     {{5.05002691, {0.02519417, 0.275259, -0.8552409, 0.3226982, -0.9191185, -0.1374981, 1.443231, -0.2731984, -0.6621694, -1.480892, -0.1885628}},
      {4.97591849, {0.4800951, 0.6483481, -0.1127734, 0.2340651, -0.6549726, 0.3116884, 0.7519842, 1.035483, -1.470081, -1.193073, 0.00518115}}}},
    {"gemma3: two rotary embeddings, one scaled; norms of heads; an untied head",
     "{\"_sliding_window_pattern\": 6, \"architectures\": [\"Gemma3ForCausalLM\"], \"attention_bias\": false, \"bos_token_id\""
     ": 1, \"dtype\": \"float32\", \"eos_token_id\": 2, \"head_dim\": 24, \"hidden_activation\": \"gelu_pytorch_tanh\", \"hidden_"
     "size\": 80, \"intermediate_size\": 96, \"layer_types\": [\"sliding_attention\", \"full_attention\", \"sliding_attention\""
     "], \"max_position_embeddings\": 256, \"model_type\": \"gemma3_text\", \"num_attention_heads\": 4, \"num_hidden_layers\":"
     " 3, \"num_key_value_heads\": 2, \"query_pre_attn_scalar\": 30, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"full_at"
     "tention\": {\"factor\": 8.0, \"rope_theta\": 5000.0, \"rope_type\": \"linear\"}, \"sliding_attention\": {\"rope_theta\": 10"
     "0.0, \"rope_type\": \"default\"}}, \"sliding_window\": 6, \"tie_word_embeddings\": false, \"use_bidirectional_attention"
     "\": false, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 80}}, {"model.layers.0.self_attn.q_proj.weight", {96, 80}},
      {"model.layers.0.self_attn.k_proj.weight", {48, 80}}, {"model.layers.0.self_attn.v_proj.weight", {48, 80}},
      {"model.layers.0.self_attn.o_proj.weight", {80, 96}}, {"model.layers.0.self_attn.q_norm.weight", {24}},
      {"model.layers.0.self_attn.k_norm.weight", {24}}, {"model.layers.0.mlp.gate_proj.weight", {96, 80}},
      {"model.layers.0.mlp.up_proj.weight", {96, 80}}, {"model.layers.0.mlp.down_proj.weight", {80, 96}},
      {"model.layers.0.input_layernorm.weight", {80}}, {"model.layers.0.post_attention_layernorm.weight", {80}},
      {"model.layers.0.pre_feedforward_layernorm.weight", {80}}, {"model.layers.0.post_feedforward_layernorm.weight", {80}},
      {"model.layers.1.self_attn.q_proj.weight", {96, 80}}, {"model.layers.1.self_attn.k_proj.weight", {48, 80}},
      {"model.layers.1.self_attn.v_proj.weight", {48, 80}}, {"model.layers.1.self_attn.o_proj.weight", {80, 96}},
      {"model.layers.1.self_attn.q_norm.weight", {24}}, {"model.layers.1.self_attn.k_norm.weight", {24}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 80}}, {"model.layers.1.mlp.up_proj.weight", {96, 80}},
      {"model.layers.1.mlp.down_proj.weight", {80, 96}}, {"model.layers.1.input_layernorm.weight", {80}},
      {"model.layers.1.post_attention_layernorm.weight", {80}}, {"model.layers.1.pre_feedforward_layernorm.weight", {80}},
      {"model.layers.1.post_feedforward_layernorm.weight", {80}}, {"model.layers.2.self_attn.q_proj.weight", {96, 80}},
      {"model.layers.2.self_attn.k_proj.weight", {48, 80}}, {"model.layers.2.self_attn.v_proj.weight", {48, 80}},
      {"model.layers.2.self_attn.o_proj.weight", {80, 96}}, {"model.layers.2.self_attn.q_norm.weight", {24}},
      {"model.layers.2.self_attn.k_norm.weight", {24}}, {"model.layers.2.mlp.gate_proj.weight", {96, 80}},
      {"model.layers.2.mlp.up_proj.weight", {96, 80}}, {"model.layers.2.mlp.down_proj.weight", {80, 96}},
      {"model.layers.2.input_layernorm.weight", {80}}, {"model.layers.2.post_attention_layernorm.weight", {80}},
      {"model.layers.2.pre_feedforward_layernorm.weight", {80}}, {"model.layers.2.post_feedforward_layernorm.weight", {80}},
      {"model.norm.weight", {80}}, {"lm_head.weight", {96, 80}}},
     {{4.98305844, {0.8362674, 0.03646815, 0.07061626, 0.4000197, -1.37987, -0.2718093, 0.3379895, -1.088583, 1.546516, 0.2175723, -1.266264}},
      {4.94500631, {0.721646, -0.2188735, 0.4597649, -0.1974484, 0.3887852, -1.792963, 0.4071805, -1.019945, -0.4427434, 1.604517, -1.618339}}}},
    {"gemma3 with a cap of its logits and biases",
     "{\"_sliding_window_pattern\": 6, \"architectures\": [\"Gemma3ForCausalLM\"], \"attention_bias\": true, \"bos_token_id\":"
     " 1, \"dtype\": \"float32\", \"eos_token_id\": 2, \"final_logit_softcapping\": 4.0, \"head_dim\": 16, \"hidden_activation\""
     ": \"gelu_pytorch_tanh\", \"hidden_size\": 64, \"intermediate_size\": 96, \"layer_types\": [\"sliding_attention\", \"slidi"
     "ng_attention\", \"sliding_attention\"], \"max_position_embeddings\": 256, \"model_type\": \"gemma3_text\", \"num_attenti"
     "on_heads\": 4, \"num_hidden_layers\": 3, \"num_key_value_heads\": 2, \"query_pre_attn_scalar\": 16, \"rms_norm_eps\": 1"
     "e-06, \"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1000000.0, \"rope_type\": \"default\"}, \"sliding_attent"
     "ion\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}}, \"sliding_window\": 5, \"tie_word_embeddings\": true, \"use"
     "_bidirectional_attention\": false, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}}, {"model.layers.0.self_attn.q_proj.bias", {64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.k_proj.bias", {32}},
      {"model.layers.0.self_attn.v_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.bias", {32}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.self_attn.o_proj.bias", {64}},
      {"model.layers.0.self_attn.q_norm.weight", {16}}, {"model.layers.0.self_attn.k_norm.weight", {16}},
      {"model.layers.0.mlp.gate_proj.weight", {96, 64}}, {"model.layers.0.mlp.up_proj.weight", {96, 64}},
      {"model.layers.0.mlp.down_proj.weight", {64, 96}}, {"model.layers.0.input_layernorm.weight", {64}},
      {"model.layers.0.post_attention_layernorm.weight", {64}}, {"model.layers.0.pre_feedforward_layernorm.weight", {64}},
      {"model.layers.0.post_feedforward_layernorm.weight", {64}}, {"model.layers.1.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.q_proj.bias", {64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.k_proj.bias", {32}}, {"model.layers.1.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.bias", {32}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.o_proj.bias", {64}}, {"model.layers.1.self_attn.q_norm.weight", {16}},
      {"model.layers.1.self_attn.k_norm.weight", {16}}, {"model.layers.1.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.1.mlp.up_proj.weight", {96, 64}}, {"model.layers.1.mlp.down_proj.weight", {64, 96}},
      {"model.layers.1.input_layernorm.weight", {64}}, {"model.layers.1.post_attention_layernorm.weight", {64}},
      {"model.layers.1.pre_feedforward_layernorm.weight", {64}}, {"model.layers.1.post_feedforward_layernorm.weight", {64}},
      {"model.layers.2.self_attn.q_proj.weight", {64, 64}}, {"model.layers.2.self_attn.q_proj.bias", {64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.k_proj.bias", {32}},
      {"model.layers.2.self_attn.v_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.bias", {32}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.self_attn.o_proj.bias", {64}},
      {"model.layers.2.self_attn.q_norm.weight", {16}}, {"model.layers.2.self_attn.k_norm.weight", {16}},
      {"model.layers.2.mlp.gate_proj.weight", {96, 64}}, {"model.layers.2.mlp.up_proj.weight", {96, 64}},
      {"model.layers.2.mlp.down_proj.weight", {64, 96}}, {"model.layers.2.input_layernorm.weight", {64}},
      {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.layers.2.pre_feedforward_layernorm.weight", {64}},
      {"model.layers.2.post_feedforward_layernorm.weight", {64}}, {"model.norm.weight", {64}}},
     {{5.03546609, {-1.13649, -0.3415598, -0.2264842, 0.6136053, 1.618065, 1.18913, -0.09709374, 1.511476, -1.220083, 0.1976237, 0.2725916}},
      {5.09526441, {-0.9517918, 1.389327, -0.3032259, -0.3763201, -0.3094328, -0.03620289, -0.02893644, -0.8359664, 1.481782, -0.2118628, -1.132639}}}},
    {"gpt2",
     "{\"activation_function\": \"gelu_new\", \"add_cross_attention\": false, \"architectures\": [\"GPT2LMHeadModel\"], \"attn_"
     "pdrop\": 0.1, \"bos_token_id\": 1, \"dtype\": \"float32\", \"embd_pdrop\": 0.1, \"eos_token_id\": 2, \"layer_norm_epsilon\""
     ": 1e-05, \"model_type\": \"gpt2\", \"n_embd\": 64, \"n_head\": 4, \"n_inner\": 100, \"n_layer\": 3, \"n_positions\": 64, \"re"
     "order_and_upcast_attn\": false, \"resid_pdrop\": 0.1, \"scale_attn_by_inverse_layer_idx\": false, \"scale_attn_weigh"
     "ts\": true, \"summary_first_dropout\": 0.1, \"summary_proj_to_labels\": true, \"summary_type\": \"cls_index\", \"summary"
     "_use_proj\": true, \"tie_word_embeddings\": true, \"vocab_size\": 96}",
     {{"transformer.wte.weight", {96, 64}}, {"transformer.wpe.weight", {64, 64}}, {"transformer.h.0.ln_1.weight", {64}},
      {"transformer.h.0.ln_1.bias", {64}}, {"transformer.h.0.attn.c_attn.weight", {64, 192}}, {"transformer.h.0.attn.c_attn.bias", {192}},
      {"transformer.h.0.attn.c_proj.weight", {64, 64}}, {"transformer.h.0.attn.c_proj.bias", {64}}, {"transformer.h.0.ln_2.weight", {64}},
      {"transformer.h.0.ln_2.bias", {64}}, {"transformer.h.0.mlp.c_fc.weight", {64, 100}}, {"transformer.h.0.mlp.c_fc.bias", {100}},
      {"transformer.h.0.mlp.c_proj.weight", {100, 64}}, {"transformer.h.0.mlp.c_proj.bias", {64}}, {"transformer.h.1.ln_1.weight", {64}},
      {"transformer.h.1.ln_1.bias", {64}}, {"transformer.h.1.attn.c_attn.weight", {64, 192}}, {"transformer.h.1.attn.c_attn.bias", {192}},
      {"transformer.h.1.attn.c_proj.weight", {64, 64}}, {"transformer.h.1.attn.c_proj.bias", {64}}, {"transformer.h.1.ln_2.weight", {64}},
      {"transformer.h.1.ln_2.bias", {64}}, {"transformer.h.1.mlp.c_fc.weight", {64, 100}}, {"transformer.h.1.mlp.c_fc.bias", {100}},
      {"transformer.h.1.mlp.c_proj.weight", {100, 64}}, {"transformer.h.1.mlp.c_proj.bias", {64}}, {"transformer.h.2.ln_1.weight", {64}},
      {"transformer.h.2.ln_1.bias", {64}}, {"transformer.h.2.attn.c_attn.weight", {64, 192}}, {"transformer.h.2.attn.c_attn.bias", {192}},
      {"transformer.h.2.attn.c_proj.weight", {64, 64}}, {"transformer.h.2.attn.c_proj.bias", {64}}, {"transformer.h.2.ln_2.weight", {64}},
      {"transformer.h.2.ln_2.bias", {64}}, {"transformer.h.2.mlp.c_fc.weight", {64, 100}}, {"transformer.h.2.mlp.c_fc.bias", {100}},
      {"transformer.h.2.mlp.c_proj.weight", {100, 64}}, {"transformer.h.2.mlp.c_proj.bias", {64}}, {"transformer.ln_f.weight", {64}},
      {"transformer.ln_f.bias", {64}}},
     {{5.48517711, {-0.7256333, -1.198706, 0.6922214, -0.9375634, -1.015383, 0.8181215, -1.673279, -2.11661, -2.421642, 0.7578003, 1.26003}},
      {5.48045396, {-0.4917083, -1.27708, 0.6585031, -0.8400724, -0.9601463, 0.735234, -1.697824, -2.246764, -2.193537, 0.6296287, 1.331039}}}},
    {"gpt2 with a head of its own, four times as wide inside",
     "{\"activation_function\": \"gelu_new\", \"add_cross_attention\": false, \"architectures\": [\"GPT2LMHeadModel\"], \"attn_"
     "pdrop\": 0.1, \"bos_token_id\": 1, \"dtype\": \"float32\", \"embd_pdrop\": 0.1, \"eos_token_id\": 2, \"layer_norm_epsilon\""
     ": 1e-05, \"model_type\": \"gpt2\", \"n_embd\": 48, \"n_head\": 3, \"n_layer\": 2, \"n_positions\": 48, \"reorder_and_upcast"
     "_attn\": false, \"resid_pdrop\": 0.1, \"scale_attn_by_inverse_layer_idx\": false, \"scale_attn_weights\": true, \"summ"
     "ary_first_dropout\": 0.1, \"summary_proj_to_labels\": true, \"summary_type\": \"cls_index\", \"summary_use_proj\": true"
     ", \"tie_word_embeddings\": false, \"vocab_size\": 96}",
     {{"transformer.wte.weight", {96, 48}}, {"transformer.wpe.weight", {48, 48}}, {"transformer.h.0.ln_1.weight", {48}},
      {"transformer.h.0.ln_1.bias", {48}}, {"transformer.h.0.attn.c_attn.weight", {48, 144}}, {"transformer.h.0.attn.c_attn.bias", {144}},
      {"transformer.h.0.attn.c_proj.weight", {48, 48}}, {"transformer.h.0.attn.c_proj.bias", {48}}, {"transformer.h.0.ln_2.weight", {48}},
      {"transformer.h.0.ln_2.bias", {48}}, {"transformer.h.0.mlp.c_fc.weight", {48, 192}}, {"transformer.h.0.mlp.c_fc.bias", {192}},
      {"transformer.h.0.mlp.c_proj.weight", {192, 48}}, {"transformer.h.0.mlp.c_proj.bias", {48}}, {"transformer.h.1.ln_1.weight", {48}},
      {"transformer.h.1.ln_1.bias", {48}}, {"transformer.h.1.attn.c_attn.weight", {48, 144}}, {"transformer.h.1.attn.c_attn.bias", {144}},
      {"transformer.h.1.attn.c_proj.weight", {48, 48}}, {"transformer.h.1.attn.c_proj.bias", {48}}, {"transformer.h.1.ln_2.weight", {48}},
      {"transformer.h.1.ln_2.bias", {48}}, {"transformer.h.1.mlp.c_fc.weight", {48, 192}}, {"transformer.h.1.mlp.c_fc.bias", {192}},
      {"transformer.h.1.mlp.c_proj.weight", {192, 48}}, {"transformer.h.1.mlp.c_proj.bias", {48}}, {"transformer.ln_f.weight", {48}},
      {"transformer.ln_f.bias", {48}}, {"lm_head.weight", {96, 48}}},
     {{5.1300143, {-1.356425, -0.07859757, -0.5879693, 0.2266357, -0.7733572, 1.200722, -0.1541781, 1.053803, -0.6596724, 0.387746, -0.9968718}},
      {5.14428195, {-1.320726, -0.06140272, -0.6987685, -0.03476934, -1.100203, 1.22156, 0.09529162, 0.5141595, -0.4932178, 0.1194254, -0.9167659}}}},
    {"stablelm: a quarter of heads rotates",
     "{\"architectures\": [\"StableLmForCausalLM\"], \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_token_id\": 2, \"hidden_a"
     "ct\": \"silu\", \"hidden_dropout\": 0.0, \"hidden_size\": 128, \"intermediate_size\": 96, \"layer_norm_eps\": 1e-05, \"max"
     "_position_embeddings\": 256, \"model_type\": \"stablelm\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \"num_k"
     "ey_value_heads\": 2, \"qk_layernorm\": false, \"rope_parameters\": {\"partial_rotary_factor\": 0.25, \"rope_theta\": 10"
     "000.0, \"rope_type\": \"default\"}, \"tie_word_embeddings\": false, \"use_parallel_residual\": false, \"use_qkv_bias\": "
     "true, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 128}}, {"model.layers.0.self_attn.q_proj.weight", {128, 128}},
      {"model.layers.0.self_attn.q_proj.bias", {128}}, {"model.layers.0.self_attn.k_proj.weight", {64, 128}},
      {"model.layers.0.self_attn.k_proj.bias", {64}}, {"model.layers.0.self_attn.v_proj.weight", {64, 128}},
      {"model.layers.0.self_attn.v_proj.bias", {64}}, {"model.layers.0.self_attn.o_proj.weight", {128, 128}},
      {"model.layers.0.mlp.gate_proj.weight", {96, 128}}, {"model.layers.0.mlp.up_proj.weight", {96, 128}},
      {"model.layers.0.mlp.down_proj.weight", {128, 96}}, {"model.layers.0.input_layernorm.weight", {128}},
      {"model.layers.0.input_layernorm.bias", {128}}, {"model.layers.0.post_attention_layernorm.weight", {128}},
      {"model.layers.0.post_attention_layernorm.bias", {128}}, {"model.layers.1.self_attn.q_proj.weight", {128, 128}},
      {"model.layers.1.self_attn.q_proj.bias", {128}}, {"model.layers.1.self_attn.k_proj.weight", {64, 128}},
      {"model.layers.1.self_attn.k_proj.bias", {64}}, {"model.layers.1.self_attn.v_proj.weight", {64, 128}},
      {"model.layers.1.self_attn.v_proj.bias", {64}}, {"model.layers.1.self_attn.o_proj.weight", {128, 128}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 128}}, {"model.layers.1.mlp.up_proj.weight", {96, 128}},
      {"model.layers.1.mlp.down_proj.weight", {128, 96}}, {"model.layers.1.input_layernorm.weight", {128}},
      {"model.layers.1.input_layernorm.bias", {128}}, {"model.layers.1.post_attention_layernorm.weight", {128}},
      {"model.layers.1.post_attention_layernorm.bias", {128}}, {"model.layers.2.self_attn.q_proj.weight", {128, 128}},
      {"model.layers.2.self_attn.q_proj.bias", {128}}, {"model.layers.2.self_attn.k_proj.weight", {64, 128}},
      {"model.layers.2.self_attn.k_proj.bias", {64}}, {"model.layers.2.self_attn.v_proj.weight", {64, 128}},
      {"model.layers.2.self_attn.v_proj.bias", {64}}, {"model.layers.2.self_attn.o_proj.weight", {128, 128}},
      {"model.layers.2.mlp.gate_proj.weight", {96, 128}}, {"model.layers.2.mlp.up_proj.weight", {96, 128}},
      {"model.layers.2.mlp.down_proj.weight", {128, 96}}, {"model.layers.2.input_layernorm.weight", {128}},
      {"model.layers.2.input_layernorm.bias", {128}}, {"model.layers.2.post_attention_layernorm.weight", {128}},
      {"model.layers.2.post_attention_layernorm.bias", {128}}, {"model.norm.weight", {128}}, {"model.norm.bias", {128}},
      {"lm_head.weight", {96, 128}}},
     {{6.63693844, {-1.700836, 1.372267, -2.204685, 0.216241, 1.337054, -2.260946, -2.423776, 2.03239, -1.729703, -1.204376, -0.549627}},
      {5.87586703, {-0.8951048, 0.8223646, -0.4121887, 0.8826821, 0.8554423, -1.639, -3.903672, 2.492334, -2.290879, -1.138347, -0.4275469}}}},
    {"stablelm: half of heads rotates, no biases of q, k, v",
     "{\"architectures\": [\"StableLmForCausalLM\"], \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_token_id\": 2, \"hidden_a"
     "ct\": \"silu\", \"hidden_dropout\": 0.0, \"hidden_size\": 64, \"intermediate_size\": 96, \"layer_norm_eps\": 1e-05, \"max_"
     "position_embeddings\": 256, \"model_type\": \"stablelm\", \"num_attention_heads\": 4, \"num_hidden_layers\": 3, \"num_ke"
     "y_value_heads\": 2, \"qk_layernorm\": false, \"rope_parameters\": {\"partial_rotary_factor\": 0.5, \"rope_theta\": 5000"
     ".0, \"rope_type\": \"default\"}, \"tie_word_embeddings\": true, \"use_parallel_residual\": false, \"use_qkv_bias\": fals"
     "e, \"vocab_size\": 96}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.0.mlp.up_proj.weight", {96, 64}}, {"model.layers.0.mlp.down_proj.weight", {64, 96}},
      {"model.layers.0.input_layernorm.weight", {64}}, {"model.layers.0.input_layernorm.bias", {64}},
      {"model.layers.0.post_attention_layernorm.weight", {64}}, {"model.layers.0.post_attention_layernorm.bias", {64}},
      {"model.layers.1.self_attn.q_proj.weight", {64, 64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.weight", {32, 64}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.mlp.gate_proj.weight", {96, 64}}, {"model.layers.1.mlp.up_proj.weight", {96, 64}},
      {"model.layers.1.mlp.down_proj.weight", {64, 96}}, {"model.layers.1.input_layernorm.weight", {64}},
      {"model.layers.1.input_layernorm.bias", {64}}, {"model.layers.1.post_attention_layernorm.weight", {64}},
      {"model.layers.1.post_attention_layernorm.bias", {64}}, {"model.layers.2.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.2.mlp.up_proj.weight", {96, 64}}, {"model.layers.2.mlp.down_proj.weight", {64, 96}},
      {"model.layers.2.input_layernorm.weight", {64}}, {"model.layers.2.input_layernorm.bias", {64}},
      {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.layers.2.post_attention_layernorm.bias", {64}}, {"model.norm.weight", {64}},
      {"model.norm.bias", {64}}},
     {{5.48330167, {-0.1032986, -1.164976, 1.203109, 2.439033, 0.1112033, -0.9938258, 1.114522, 0.3853719, -1.858037, 0.6677616, 2.109563}},
      {5.48005036, {-0.210662, -0.9646521, 1.310023, 2.324774, -0.2418478, -1.591866, 1.359337, 0.7225401, -1.424491, 0.735231, 1.690799}}}},
    {"smollm3 with a window where it has no positions",
     "{\"architectures\": [\"SmolLM3ForCausalLM\"], \"attention_bias\": true, \"bos_token_id\": 1, \"dtype\": \"float32\", \"eos_"
     "token_id\": 2, \"hidden_act\": \"silu\", \"hidden_size\": 64, \"intermediate_size\": 96, \"layer_types\": [\"full_attentio"
     "n\", \"sliding_attention\", \"full_attention\"], \"max_position_embeddings\": 256, \"mlp_bias\": false, \"model_type\": \""
     "smollm3\", \"no_rope_layer_interval\": 4, \"no_rope_layers\": [1, 0, 1], \"num_attention_heads\": 4, \"num_hidden_laye"
     "rs\": 3, \"num_key_value_heads\": 2, \"rms_norm_eps\": 1e-06, \"rope_parameters\": {\"rope_theta\": 2000000.0, \"rope_ty"
     "pe\": \"default\"}, \"sliding_window\": 6, \"tie_word_embeddings\": true, \"use_sliding_window\": true, \"vocab_size\": 9"
     "6}",
     {{"model.embed_tokens.weight", {96, 64}}, {"model.layers.0.self_attn.q_proj.weight", {64, 64}}, {"model.layers.0.self_attn.q_proj.bias", {64}},
      {"model.layers.0.self_attn.k_proj.weight", {32, 64}}, {"model.layers.0.self_attn.k_proj.bias", {32}},
      {"model.layers.0.self_attn.v_proj.weight", {32, 64}}, {"model.layers.0.self_attn.v_proj.bias", {32}},
      {"model.layers.0.self_attn.o_proj.weight", {64, 64}}, {"model.layers.0.self_attn.o_proj.bias", {64}},
      {"model.layers.0.mlp.gate_proj.weight", {96, 64}}, {"model.layers.0.mlp.up_proj.weight", {96, 64}},
      {"model.layers.0.mlp.down_proj.weight", {64, 96}}, {"model.layers.0.input_layernorm.weight", {64}},
      {"model.layers.0.post_attention_layernorm.weight", {64}}, {"model.layers.1.self_attn.q_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.q_proj.bias", {64}}, {"model.layers.1.self_attn.k_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.k_proj.bias", {32}}, {"model.layers.1.self_attn.v_proj.weight", {32, 64}},
      {"model.layers.1.self_attn.v_proj.bias", {32}}, {"model.layers.1.self_attn.o_proj.weight", {64, 64}},
      {"model.layers.1.self_attn.o_proj.bias", {64}}, {"model.layers.1.mlp.gate_proj.weight", {96, 64}},
      {"model.layers.1.mlp.up_proj.weight", {96, 64}}, {"model.layers.1.mlp.down_proj.weight", {64, 96}},
      {"model.layers.1.input_layernorm.weight", {64}}, {"model.layers.1.post_attention_layernorm.weight", {64}},
      {"model.layers.2.self_attn.q_proj.weight", {64, 64}}, {"model.layers.2.self_attn.q_proj.bias", {64}},
      {"model.layers.2.self_attn.k_proj.weight", {32, 64}}, {"model.layers.2.self_attn.k_proj.bias", {32}},
      {"model.layers.2.self_attn.v_proj.weight", {32, 64}}, {"model.layers.2.self_attn.v_proj.bias", {32}},
      {"model.layers.2.self_attn.o_proj.weight", {64, 64}}, {"model.layers.2.self_attn.o_proj.bias", {64}},
      {"model.layers.2.mlp.gate_proj.weight", {96, 64}}, {"model.layers.2.mlp.up_proj.weight", {96, 64}},
      {"model.layers.2.mlp.down_proj.weight", {64, 96}}, {"model.layers.2.input_layernorm.weight", {64}},
      {"model.layers.2.post_attention_layernorm.weight", {64}}, {"model.norm.weight", {64}}},
     {{4.98124539, {0.536521, 0.5672832, 2.288294, -0.9178157, 0.1605059, -0.1401892, 0.1854193, 0.474888, 1.015008, 0.5518807, -0.2317183}},
      {5.10491922, {1.188749, 0.9452384, -1.219925, -0.6363008, 0.08630913, -1.110119, 1.100431, -0.6680406, -0.340828, -0.6848625, 0.1123398}}}},
};
