// What tsc must know of the file beside: it is not checked.
export interface Piece { scope?: string; children: (Piece | string)[] }
declare const highlight: {
  registerLanguage(name: string, grammar: unknown): void;
  getLanguage(name: string): unknown;
  highlight(text: string, options: { language: string; ignoreIllegals?: boolean }): { _emitter: { rootNode: Piece } };
};
export default highlight;
