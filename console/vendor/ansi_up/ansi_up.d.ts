// What tsc must know of the file beside: it is not checked.
export const AnsiUp: any;
