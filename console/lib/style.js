// Style sheets that only some views need: the page names them, in their order, and loads them with those views.

/** Those that are loaded or being loaded, by their names. */
const sheets = new Map();

/** Load a style sheet by its name, once. Rejects where it does not load; then the next call tries again. */
export function style(name) {
  if (!sheets.has(name)) sheets.set(name, load(name));
  return sheets.get(name);
}

// The link of the page stands there disabled, and keeps the place among the others.
function load(name) {
  const place = document.getElementById(`style-${name}`),
    link = /** @type {HTMLLinkElement} */ (place.cloneNode());
  link.disabled = false;
  return new Promise((resolve, reject) => {
    link.onload = resolve;
    link.onerror = () => {
      sheets.delete(name);
      link.replaceWith(place);
      reject(new Error(`${name}.css did not load.`));
    };
    place.replaceWith(link);
  });
}
