// What tsc must know of the file beside: it is not checked.
export const FitAddon: any;
