// Shows the OpenAPI document. A key in the fragment (#key=…), which no browser sends to a server, is authorized at once
// and leaves the address bar and the history.
"use strict";

const key = new URLSearchParams(location.hash.slice(1)).get("key");
if (key) history.replaceState(null, "", location.pathname + location.search);

// The document itself may need the key too. Requests of the page go to its own server alone.
const withKey = (request) => {
  if (request.loadSpec) request.headers["X-Session-API-Key"] = key;
  return request;
};

window.ui = SwaggerUIBundle({
  url: new URL("openapi.json", location.href).href,
  dom_id: "#swagger-ui",
  validatorUrl: null,
  ...(key && { requestInterceptor: withKey, onComplete: authorize }),
});

function authorize() {
  const schemes = window.ui.specSelectors.specJson().toJS().components?.securitySchemes ?? {};
  for (const name of Object.keys(schemes)) window.ui.preauthorizeApiKey(name, key);
}
