//! What tokens of jobs are verified by.

use serde_json::json;

use super::told;

#[tokio::test(flavor = "multi_thread")]
async fn who_verifies_tokens_finds_issuer_and_keys_at_the_paths_of_openid_connect_and_of_zuul() {
    let site = told(2).await;
    for path in [
        "/.well-known/openid-configuration",
        "/oidc/.well-known/openid-configuration",
        "/oidc/tenant/demo/.well-known/openid-configuration",
    ] {
        let answer = site.served.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let expected = json!({
            "issuer": "https://ci.example.org",
            "jwks_uri": "https://ci.example.org/oidc/jwks",
            "claims_supported": ["aud", "iat", "iss", "name", "sub", "custom"],
            "response_types_supported": ["id_token"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "subject_types_supported": ["public"],
        });
        assert_eq!(answer.json(), expected, "{path}");
    }
    for path in [
        "/oidc/jwks",
        "/oidc/tenant/demo/jwks",
        "/oidc/.well-known/jwks",
        "/.well-known/jwks",
        "/oidc/demo/jwks",
        "/oidc/demo/.well-known/jwks",
    ] {
        let answer = site.served.get(path).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"keys": [{"kid": "RS256-7"}]})), "{path}");
    }
}
